"""The table `snapshot`: the engine's books as they stand, taken whole."""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

from vstate.schemas.table import BLOCKS, GROUP, POOL, REQUEST_KEY, SEQ, STEP, Column, Table


class SnapshotKind(IntEnum):
    """What a row of a snapshot holds."""

    BEGIN = 0
    POOL = 1
    HOLDER = 2
    HASH = 3
    REQUEST = 4
    END = 5
    ENCODER = 6
    ENCODER_ENTRY = 7


SNAPSHOT = Table(
    "snapshot",
    "The state from which replay starts: at the start of a segment and after lost events. A snapshot is "
    "the rows from `begin` to `end`; one without `end` is not used.",
    (
        SEQ,
        STEP,
        Column("kind", pa.int8(), "What the row holds.", SnapshotKind),
        Column("lost_from_step", pa.int64(), "In `begin`: first step with lost events; -1 where none were lost."),
        POOL,
        GROUP,
        REQUEST_KEY,
        Column("attempt", pa.int32(), "In `request`: number of its admissions so far."),
        Column("prompt_tokens", pa.int32(), "In `request`: tokens of the prompt."),
        Column("max_tokens", pa.int32(), "In `request`: output tokens it may produce at most."),
        Column("total_tokens", pa.int32(), "In `request`: prompt and output tokens known."),
        Column("computed_tokens", pa.int32(), "In `request`: tokens counted as computed."),
        Column("free_blocks", pa.int32(), "In `pool`: free blocks by the pool's own counter."),
        Column("position_tokens", pa.int32(), "In `hash`: tokens of the prefix the hash stands for."),
        Column(
            "entry_embeds", pa.int32(), "In `encoder_entry`: embeddings booked for it; in `encoder`: size of the cache."
        ),
        Column("free_embeds", pa.int32(), "In `encoder`: free embeddings of the cache."),
        Column(
            "media", pa.int64(), "In `encoder_entry`: keyed hash of the item; a row per request that uses it, or one."
        ),
        Column("block_hash", pa.int64(), "In `hash`: keyed hash of the block hash."),
        BLOCKS,
    ),
)
