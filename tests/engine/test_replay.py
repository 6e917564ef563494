"""Replay of the trace against the real engine's own books."""

import bisect
import shutil

import pyarrow as pa
import pytest

from support.fidelity import first_difference
from support.runs import CELLS, reconciled
from support.traces import renumber_streams
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.tables.snapshot import SnapshotKind
from vstate.schemas.tables.step import StepKind
from vstate.schemas.vocabulary import ATTENTION_CLASSES

PARTIAL = CELLS[4]


def test_replay_equals_the_engines_books_at_every_step(run):
    assert run.illegal == []
    assert run.summary["verdict"] == "clean"
    assert run.summary["gaps"] == []
    assert run.summary["dropped"] == 0
    assert run.summary["steps"] == sum(row["kind"] == StepKind.SCHEDULED for row in run.rows("step"))
    assert run.summary["steps"] > 50


def test_the_engines_tables_were_taken_at_every_boundary(run):
    """What the test above rests on: each boundary's row is followed by a whole snapshot."""
    boundaries = [row["seq"] for row in run.rows("step")]
    ends = [row["seq"] for row in run.rows("snapshot") if row["kind"] == SnapshotKind.END]
    following = [bisect.bisect_right(ends, seq) for seq in boundaries]
    assert all(place < len(ends) for place in following)
    assert len(set(following)) == len(boundaries), "two boundaries share a snapshot"
    held = [row for row in run.rows("snapshot") if row["kind"] == SnapshotKind.HOLDER]
    assert len(held) > len(boundaries)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_the_scheduler_engine_does_the_same(run_of, without_a_forward, cell):
    """Every row of every table, in the same order, from the same workload and tokens."""
    other = without_a_forward(cell)
    assert first_difference(run_of(cell), other) is None
    assert other.illegal == []
    assert other.summary["verdict"] == "clean"


def test_every_alloc_and_free_names_its_request_and_group(run):
    for row in run.rows("block"):
        if row["kind"] in (BlockKind.ALLOC, BlockKind.TOUCH):
            assert row["request_key"] >= 0, row
            assert row["group"] >= 0, row
        if row["kind"] == BlockKind.FREE:
            assert row["request_key"] != -2, f"free by an unknown holder: {row}"


def test_vstate_undercounts_nowhere(run):
    estimates = run.estimates("vstate", "life")
    assert estimates
    assert all(e["undercount_requests"] == 0 and e["unknown_requests"] == 0 for e in estimates)
    assert all(e["requests"] >= 22 for e in estimates)


def test_naive_undercounts_every_group_that_is_not_attention(run):
    groups = {group.group: group for group in run.process.groups}
    for estimate in run.estimates("naive", "life"):
        classes = {component.state_class for component in groups[estimate["group"]].components}
        if not classes & ATTENTION_CLASSES:
            assert estimate["undercount_requests"] == estimate["requests"]
            assert estimate["undercount_blocks"] == estimate["observed_peak_blocks"] > 0


def test_everything_the_workload_aims_at_happened(run):
    outcome = run.manifest["outcome"]
    caching = run.manifest["settings"].get("enable_prefix_caching", True)
    for name in ("evictions", "prefix_hits") if caching else ():
        assert outcome[name] > 0, name
    for name in ("preemptions", "resumes", "aborts", "refusals"):
        assert outcome[name] > 0, name
    assert outcome["requests"] == 25
    assert outcome["finished"] + outcome["aborts"] == 25


def test_two_counts_of_the_outcome_agree(run):
    """`run.json` counts with pyarrow over the streams, reconcile in SQL over its cache."""
    assert run.summary["outcome"] == run.manifest["outcome"]


def test_copy_on_write_is_seen_where_hits_end_inside_a_block(run_of):
    assert run_of(PARTIAL).manifest["outcome"]["copy_on_write"] > 0
    assert run_of(CELLS[3]).manifest["outcome"]["copy_on_write"] == 0


def test_external_ids_are_the_clients(run):
    external = {row["value"] for row in run.rows("names") if row["kind"] == 1}
    assert {"first", "again", "grow-0", "gives-up-waiting", "pair-b"} <= external


def rewrite(path, keep):
    """Write a stream again with the rows that ``keep`` returns."""
    with pa.OSFile(str(path)) as file:
        table = pa.ipc.open_stream(file).read_all()
    kept = pa.Table.from_pylist(keep(table.to_pylist()), schema=table.schema)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(kept)


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        (CELLS[0], BlockKind.ALLOC),
        (CELLS[0], BlockKind.FREE),
        (CELLS[0], BlockKind.TOUCH),
        (CELLS[0], BlockKind.EVICT),
        (CELLS[0], BlockKind.CACHE_INSERT),
        (PARTIAL, BlockKind.PIN),
        (PARTIAL, BlockKind.UNPIN),
        (PARTIAL, BlockKind.CACHE_REMOVE),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, BlockKind) else str(value),
)
def test_one_dropped_event_of_a_real_run_is_caught(run_of, tmp_path, cell, kind):
    folder = tmp_path / "run"
    shutil.copytree(run_of(cell).folder, folder, ignore=shutil.ignore_patterns("reconcile"))
    (path,) = folder.glob("events/*/block-0001.arrows")

    def without_the_middle_one(events):
        places = [number for number, event in enumerate(events) if event["kind"] == kind]
        if kind == BlockKind.CACHE_REMOVE:
            # A hash that comes back to the same block in the same step leaves nothing to notice.
            places = [n for n in places if any(event["kind"] == BlockKind.MOVE for event in events[n : n + 4])]
        assert places, f"no {kind.name} in the run"
        del events[places[len(places) // 2]]
        return events

    rewrite(path, without_the_middle_one)
    # Else the missing number alone would tell, and not the books.
    renumber_streams(path.parent)
    assert reconciled(folder).illegal


def test_prefix_rows_agree_with_admissions_and_name_who_vetoed(run_of):
    """On the convolution hybrid: attention keys outlive the state, so the state's groups veto."""
    run = run_of(CELLS[2])
    admissions = {
        (row["request_key"], row["attempt"]): row["hit_tokens"]
        for row in run.rows("request")
        if row["kind"] in (RequestKind.ADMIT, RequestKind.RESUME)
    }
    prefix = run.rows("prefix")
    assert all(admissions[row["request_key"], row["attempt"]] == row["hit_tokens"] for row in prefix)
    hits = {place: hit for place, hit in admissions.items() if hit > 0}
    assert hits.keys() <= {(row["request_key"], row["attempt"]) for row in prefix}
    vetoes = [row for row in prefix if row["group_hit_tokens"] < row["longest_hit_tokens"]]
    classes = {g.group: {c.state_class for c in g.components} for g in run.process.groups}
    assert vetoes
    assert all("conv" in classes[row["group"]] for row in vetoes)
