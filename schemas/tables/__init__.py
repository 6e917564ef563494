"""Every table of a trace, one module each."""

from __future__ import annotations

from vstate.schemas.table import Table
from vstate.schemas.tables.block import BLOCK
from vstate.schemas.tables.encoder import ENCODER
from vstate.schemas.tables.estimate import ESTIMATE
from vstate.schemas.tables.memory import MEMORY
from vstate.schemas.tables.names import NAMES
from vstate.schemas.tables.prefix import PREFIX
from vstate.schemas.tables.request import REQUEST
from vstate.schemas.tables.snapshot import SNAPSHOT
from vstate.schemas.tables.step import STEP_TABLE

TABLES: dict[str, Table] = {
    table.name: table for table in (STEP_TABLE, REQUEST, ESTIMATE, BLOCK, PREFIX, ENCODER, MEMORY, NAMES, SNAPSHOT)
}
"""All declared tables by name."""
