from pathlib import Path

import pyarrow as pa
import pytest

from vstate.schemas.document import schema_page
from vstate.schemas.table import CODES_KEY, UNIT_BY_SUFFIX, UNIT_KEY, VERSION_KEY
from vstate.schemas.tables import TABLES
from vstate.schemas.tables.block import REFERENCE_DELTA, BlockKind
from vstate.schemas.vocabulary import SCHEMA_VERSION

REPOSITORY = Path(__file__).parents[3]


def test_every_declared_table_of_the_design_is_there():
    assert set(TABLES) == {
        "step", "request", "estimate", "block", "prefix", "encoder", "memory", "names", "snapshot",
    }  # fmt: skip


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_schema_carries_version_units_and_codes(table):
    schema = table.schema()
    assert schema.metadata[VERSION_KEY] == str(SCHEMA_VERSION).encode()
    for column, field in zip(table.columns, schema, strict=True):
        assert column.doc.endswith("."), f"{table.name}.{column.name} has no sentence"
        metadata = field.metadata or {}
        expected = next((u for s, u in UNIT_BY_SUFFIX.items() if column.name.endswith(s)), None)
        assert metadata.get(UNIT_KEY) == (expected.encode() if expected else None)
        assert (CODES_KEY in metadata) == (column.codes is not None)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_codes_fit_their_column(table):
    for column in table.columns:
        if column.codes:
            pa.array([code.value for code in column.codes], type=column.type)


def test_reference_deltas_are_given_for_exactly_the_kinds_that_count():
    silent = set(BlockKind) - set(REFERENCE_DELTA)
    assert silent == {
        BlockKind.EVICT, BlockKind.CACHE_INSERT, BlockKind.CACHE_REMOVE, BlockKind.MOVE, BlockKind.RESET,
    }  # fmt: skip
    assert set(REFERENCE_DELTA.values()) == {1, -1}


def test_schema_page_is_current():
    page = (REPOSITORY / "docs" / "schema.md").read_text(encoding="utf-8")
    assert page == schema_page(), "docs/schema.md is stale: run make docs"
