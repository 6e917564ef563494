"""The table `encoder`: the encoder cache."""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

from vstate.schemas.table import REQUEST_KEY, SEQ, STEP, TIME, Column, Table


class EncoderKind(IntEnum):
    """What happened to an encoder cache entry."""

    ALLOCATE = 0
    SCHEDULE = 1
    HIT = 2
    RELEASE = 3
    EVICT = 4


ENCODER = Table(
    "encoder",
    "One row per change of the encoder cache.",
    (
        SEQ,
        STEP,
        Column("kind", pa.int8(), "What happened.", EncoderKind),
        TIME,
        REQUEST_KEY,
        Column("media", pa.int64(), "Key in `names` of the media item."),
        Column("item", pa.int32(), "Index of the item in its request."),
        Column("entry_embeds", pa.int32(), "Embeddings the scheduler booked for the item."),
        Column("free_embeds", pa.int32(), "Free embeddings of the cache afterwards."),
    ),
    written=False,
)
