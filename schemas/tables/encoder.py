"""The table `encoder`: the encoder cache."""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

from vstate.schemas.table import REQUEST_KEY, SEQ, STEP, TIME, Column, Table

MEDIA = Column("media", pa.int64(), "Keyed hash of the media item's identity; equal items of a run are equal.")


class EncoderKind(IntEnum):
    """What happened to an encoder cache entry."""

    ALLOCATE = 0
    HIT = 1
    RELEASE = 2
    EVICT = 3
    RESET = 4


ENCODER = Table(
    "encoder",
    "One row per change of the scheduler's encoder cache. `allocate` books an item that will be encoded in this step, "
    "`hit` adds a request to an entry that is there, `release` ends one use of an entry by a request, `evict` drops an "
    "entry that nobody uses to make room.",
    (
        SEQ,
        STEP,
        Column("kind", pa.int8(), "What happened.", EncoderKind),
        TIME,
        REQUEST_KEY,
        MEDIA,
        Column("item", pa.int32(), "Index of the item in its request; -1 in `evict` and `reset`."),
        Column(
            "position_tokens", pa.int32(), "Where the item's placeholders begin in the prompt; -1 without a request."
        ),
        Column("span_tokens", pa.int32(), "Length of the placeholders; -1 without a request."),
        Column("entry_embeds", pa.int32(), "Embeddings that the scheduler books for the entry."),
        Column("free_embeds", pa.int32(), "Free embeddings of the cache afterwards."),
        Column("freeable_embeds", pa.int32(), "Free embeddings and those of entries nobody uses, afterwards."),
    ),
)
