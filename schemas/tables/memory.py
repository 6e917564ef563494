"""The table `memory`: planned and real bytes per component."""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

from vstate.schemas.table import SEQ, TIME, Column, Table


class MemoryKind(IntEnum):
    """Where a figure comes from."""

    PLANNED = 0
    MEASURED = 1


MEMORY = Table(
    "memory",
    "One row per component and phase of the engine: what was planned and what tensors take.",
    (
        SEQ,
        TIME,
        Column("kind", pa.int8(), "Planned or measured.", MemoryKind),
        Column("component", pa.int32(), "Index of the component in `process.json`."),
        Column("component_bytes", pa.int64(), "Bytes of the component, aliased storages counted once."),
    ),
    written=False,
)
