"""How a table of a trace is declared.

A table is declared once. The recorder takes its row width from the declaration, the
writer its Arrow types, the readers their check of the version, ``docs/schema.md`` its
text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

from vstate.schemas.vocabulary import SCHEMA_VERSION

UNIT_KEY = b"vstate.unit"
CODES_KEY = b"vstate.codes"
VERSION_KEY = b"vstate.schema_version"
TABLE_KEY = b"vstate.table"

UNIT_BY_SUFFIX: Mapping[str, str] = {
    "_bytes": "By",
    "_tokens": "{token}",
    "_blocks": "{block}",
    "_embeds": "{embed}",
    "_ns": "ns",
}
"""UCUM unit of a numeric column by the ending of its name."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: Column name; its ending gives the unit.
        type: Arrow type in the streams.
        doc: One sentence for the schema page.
        codes: The names of the values, for a column of codes.
    """

    name: str
    type: pa.DataType
    doc: str
    codes: type[IntEnum] | None = None

    @property
    def unit(self) -> str | None:
        """UCUM unit of the column, or None where it counts nothing."""
        return next((u for suffix, u in UNIT_BY_SUFFIX.items() if self.name.endswith(suffix)), None)

    def field(self) -> pa.Field:
        """Arrow field with the unit and the codes in its metadata."""
        metadata: dict[bytes, bytes] = {}
        if self.unit is not None:
            metadata[UNIT_KEY] = self.unit.encode()
        if self.codes is not None:
            names = ",".join(f"{code.value}={code.name.lower()}" for code in self.codes)
            metadata[CODES_KEY] = names.encode()
        return pa.field(self.name, self.type, nullable=False, metadata=metadata or None)


@dataclass(frozen=True)
class Table:
    """One table of a trace.

    Attributes:
        name: Table name; its files are ``<name>-<nnnn>.arrows``.
        doc: What one row is.
        columns: Columns in the order in which they are written.
    """

    name: str
    doc: str
    columns: tuple[Column, ...]

    def schema(self) -> pa.Schema:
        """Arrow schema of the streams, with table name and schema version."""
        return pa.schema(
            [column.field() for column in self.columns],
            metadata={TABLE_KEY: self.name.encode(), VERSION_KEY: str(SCHEMA_VERSION).encode()},
        )

    def column(self, name: str) -> Column:
        """Return the column called ``name``.

        Raises:
            KeyError: There is none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


SEQ = Column("seq", pa.int64(), "Order of the event among all events of its process.")
STEP = Column("step", pa.int64(), "Number of the last `schedule()` call that had begun; 0 before the first.")
TIME = Column("time_ns", pa.int64(), "CLOCK_MONOTONIC time of the event.")
MODELLED_TIME = Column(
    "modelled_ns",
    pa.int64(),
    "Modelled time of the event: the virtual clock of the scheduler engine since its start; -1 in an engine with a "
    "real forward.",
)
REQUEST_KEY = Column("request_key", pa.int64(), "Key of the request in `names`; a negative value is a `Holder` code.")
POOL = Column("pool", pa.int16(), "Index of the block pool in `process.json`.")
GROUP = Column("group", pa.int16(), "Index of the KV-cache group in `process.json`; -1 where none.")
BLOCKS = Column("blocks", pa.list_(pa.int32()), "Block ids in the order in which the engine named them.")
