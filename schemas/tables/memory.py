"""The table `memory`: planned and real bytes per component."""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

from vstate.schemas.table import SEQ, TIME, Column, Table
from vstate.schemas.tables.encoder import MEDIA


class MemoryKind(IntEnum):
    """Where a figure comes from."""

    PLANNED = 0
    MEASURED = 1
    ITEM = 2
    BOOKED = 3
    DEVICE_ALLOCATED = 4
    DEVICE_RESERVED = 5
    DEVICE_PEAK = 6


class MemoryPhase(IntEnum):
    """When it was taken."""

    LOADED = 0
    ALLOCATED = 1
    READY = 2
    SERVING = 3


MEMORY = Table(
    "memory",
    "What state takes in the process that holds it, written by workers and front ends. `planned` follows from shapes, "
    "`measured` are bytes of real tensors, aliased storages counted once, `item` is one entry of a cache, measured, "
    "`booked` is what vLLM itself says a cache holds. `device_*` are the figures of torch's allocator.",
    (
        SEQ,
        TIME,
        Column("kind", pa.int8(), "Where the figure comes from.", MemoryKind),
        Column(
            "phase",
            pa.int8(),
            "At the end of which phase: weights loaded, pools allocated, ready, serving.",
            MemoryPhase,
        ),
        Column("component", pa.int32(), "Index of the component in the process' `process.json`; -1 for the device."),
        Column("component_bytes", pa.int64(), "Bytes."),
        Column("media", MEDIA.type, "Keyed hash of the media item's identity, for `item`; else 0."),
        Column("entry_embeds", pa.int32(), "Rows of the entry, for an encoder's output; else -1."),
    ),
)
