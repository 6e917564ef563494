"""The made-up run for measuring readers adds up, and would not if one event were missing."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.traces import serious, stream
from vstate.bench.synthetic_run import LIFE_STEPS, ROWS_PER_REQUEST, SLOTS, write_synthetic_run
from vstate.reconcile.job import reconcile_run
from vstate.schemas.tables.block import BlockKind

REQUESTS = 2 * SLOTS + 10


@pytest.fixture
def run(tmp_path):
    write_synthetic_run(tmp_path / "run", ROWS_PER_REQUEST * REQUESTS)
    return tmp_path / "run"


def test_its_books_add_up(run):
    summary = reconcile_run(run)
    assert summary.verdict == "clean"
    assert summary.requests == REQUESTS
    assert summary.steps == REQUESTS + LIFE_STEPS
    assert summary.outcome["evictions"] == (REQUESTS - SLOTS) * 9
    assert [e.undercount_requests for e in summary.estimates if e.source == "vstate"] == [0, 0]


def test_it_is_as_large_as_asked(tmp_path):
    for events in (2_000, 50_000):
        written = write_synthetic_run(tmp_path / str(events), events)
        assert abs(written - events) < 10 * LIFE_STEPS


def test_one_free_less_is_found(run):
    path = stream(run, "block-0001.arrows")
    with pa.OSFile(str(path)) as source:
        table = pa.ipc.open_stream(source).read_all()
    frees = pc.equal(table["kind"], int(BlockKind.FREE))
    first = pc.index(frees, True).as_py()
    kept = pa.concat_tables([table.slice(0, first), table.slice(first + 1)])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(kept)
    assert {finding.rule for finding in serious(reconcile_run(run))} & {"I2", "I3"}
