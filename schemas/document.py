"""Writes `docs/schema.md` from the declarations."""

from __future__ import annotations

import sys
from pathlib import Path

from vstate.schemas.table import Column, Table
from vstate.schemas.tables import TABLES
from vstate.schemas.vocabulary import SCHEMA_VERSION, Holder


def _column_row(column: Column) -> str:
    notes = column.doc
    if column.codes is not None:
        notes += " " + ", ".join(f"{code.value} `{code.name.lower()}`" for code in column.codes) + "."
    return f"| `{column.name}` | {column.type} | {column.unit or ''} | {notes} |"


def _table_section(table: Table) -> list[str]:
    title = f"## `{table.name}`"
    head = ["| column | type | unit | meaning |", "|---|---|---|---|"]
    return [title, "", table.doc, "", *head, *(_column_row(column) for column in table.columns), ""]


def schema_page() -> str:
    """Return the page as Markdown; the same declarations give the same bytes."""
    lines = [
        "# Trace schema",
        "",
        f"Schema version {SCHEMA_VERSION}. Written by `make docs` from `schemas/`; do not edit.",
        "",
        "Each table is a set of Arrow IPC streams `<table>-<nnnn>.arrows`. An integer cell of -1 says "
        "nothing in that row. A `request_key` of zero or more is a request; the others are holders:",
        "",
        *(f"- {holder.value} `{holder.name.lower()}`" for holder in Holder),
        "",
    ]
    for table in TABLES.values():
        lines += _table_section(table)
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Write the page to the path given as the only argument."""
    Path(sys.argv[1]).write_text(schema_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
