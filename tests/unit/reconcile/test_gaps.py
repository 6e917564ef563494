"""Lost events give gaps and unknown requests, and never a finding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.scenarios import Scenario, run_scenario
from support.small import SmallTrace, one_request
from support.tiny_engine import TinyEngine
from support.traces import Row, cut, process_manifest, renumbered, serious, stream, write_process, write_run
from vstate.reconcile.job import reconcile_run
from vstate.schemas.summary import Summary
from vstate.schemas.tables.snapshot import SnapshotKind

pytestmark = pytest.mark.long

Summarise = Callable[..., Summary]


@pytest.fixture(scope="module")
def rotated() -> TinyEngine:
    return run_scenario(Scenario(seed=4, layout=2, steps=30, rotate_every=8))


def unknown(summary: Summary) -> int:
    return sum(estimate.unknown_requests for estimate in summary.estimates)


def test_a_lost_chunk(summarise: Summarise, monkeypatch: pytest.MonkeyPatch) -> None:
    formulas = {"vstate": lambda *_: 0}
    monkeypatch.setattr("vstate.reconcile.estimates.formulas", lambda: formulas)
    engine = TinyEngine((24,), run_scenario(Scenario(steps=1)).groups)
    before = engine.arrive(30, 8)
    engine.step()
    engine.log.hand_over()
    across = engine.arrive(8, 20)
    engine.step()
    engine.step()
    engine.log.hand_over()
    engine.step()
    inside = engine.arrive(4, 30)
    engine.step()
    engine.lose_chunk()
    engine.drain()
    engine.arrive(12, 2)
    engine.drain()
    summary = summarise(engine.log.rows, engine.manifest, lost_rows=engine.log.lost_rows)
    assert summary.gaps == ["3..5"]
    assert summary.dropped == engine.log.lost_rows > 0
    assert {before.attempt, across.attempt, inside.attempt} == {1}
    (life,) = [e for e in summary.estimates if e.source == "vstate"]
    assert (life.requests, life.unknown_requests, life.undercount_requests) == (4, 3, 1)
    assert [f.rule for f in serious(summary)] == ["I1"], "what is known is judged"
    assert summary.verdict == "findings"


def test_a_lost_chunk_alone_is_incomplete(summarise: Summarise) -> None:
    engine = run_scenario(Scenario(seed=1, layout=3, steps=30, lose_at=15))
    summary = summarise(engine.log.rows, engine.manifest, lost_rows=engine.log.lost_rows)
    assert serious(summary) == []
    assert summary.verdict == "incomplete"
    assert len(summary.gaps) == 1
    assert summary.gaps[0].endswith("..15")
    assert unknown(summary) > 0


@pytest.mark.parametrize("first_lost", [3, 7])
def test_events_between_a_loss_and_the_next_snapshot_are_ignored(summarise: Summarise, first_lost: int) -> None:
    engine = run_scenario(Scenario(seed=2, layout=1, steps=30, rotate_every=10))
    rows = []
    for row in engine.log.rows:
        if row.table == "snapshot" and row.segment == 2:
            rows.append(row.changed(lost_from_step=first_lost))
        elif row.table != "block" or row.cells["step"] != first_lost + 1:
            rows.append(row)
    summary = summarise(rows, engine.manifest)
    assert serious(summary) == []
    assert summary.gaps == [f"{first_lost}..10"]


def test_a_cut_snapshot_tells_of_the_loss_and_the_next_one_ends_it(summarise: Summarise) -> None:
    engine = run_scenario(Scenario(seed=2, layout=1, steps=30, rotate_every=10))
    rows = []
    for row in engine.log.rows:
        if row.table == "snapshot" and row.segment == 2:
            if row.cells["kind"] != SnapshotKind.END:
                rows.append(row.changed(lost_from_step=4))
        elif row.table != "block" or row.cells["step"] != 5:
            rows.append(row)
    summary = summarise(rows, engine.manifest)
    assert serious(summary) == []
    assert summary.gaps == ["4..20"]


def test_rotation_loses_nothing(summarise: Summarise, rotated: TinyEngine) -> None:
    assert rotated.log.segment > 3
    summary = summarise(rotated.log.rows, rotated.manifest)
    assert (summary.verdict, summary.gaps, unknown(summary)) == ("clean", [], 0)


def test_the_oldest_segments_were_deleted(summarise: Summarise, rotated: TinyEngine) -> None:
    kept = [row for row in rotated.log.rows if row.segment >= 3]
    summary = summarise(kept, rotated.manifest)
    assert serious(summary) == []
    assert summary.gaps == ["1..16"]
    assert summary.verdict == "incomplete"
    alive = [
        row
        for row in kept
        if row.segment == 3 and row.table == "snapshot" and row.cells["kind"] == SnapshotKind.REQUEST
    ]
    assert alive
    arrived = sum(row.table == "request" and row.cells["kind"] == 0 for row in kept)
    assert summary.requests == arrived + len(alive)


def test_a_killed_process_is_incomplete(summarise: Summarise) -> None:
    summary = summarise(one_request(), process_manifest(), closed=False)
    assert (summary.verdict, summary.gaps, summary.dropped) == ("incomplete", [], 0)
    assert unknown(summary) == 0, "it ended before the kill"


def test_files_that_are_cut_at_the_end(tmp_path: Path) -> None:
    engine = run_scenario(Scenario(seed=6, layout=3, steps=25, drained=False))
    tables = ("block", "request", "step", "snapshot", "estimate")
    cuts = [(table, share) for table in tables for share in (0.2, 0.7)]
    for number, (table, share) in enumerate(cuts):
        manifest = engine.manifest.model_copy(update={"pid": number})
        closed = bool(number % 3)
        process = write_process(tmp_path, engine.log.rows, manifest, closed=closed)
        cut(process / f"{table}-0001.arrows", share)
    summary = reconcile_run(tmp_path)
    assert serious(summary) == []
    assert summary.verdict == "incomplete"
    assert len(summary.gaps) == len(cuts)
    assert all(gap.endswith("..25") for gap in summary.gaps)


@pytest.mark.parametrize("share", [0.4, 0.99])
def test_one_cut_file_makes_a_run_incomplete(tmp_path: Path, share: float) -> None:
    path = write_run(tmp_path / "run", one_request(), process_manifest())
    cut(stream(path, "step-0001.arrows"), share)
    summary = reconcile_run(path)
    assert (summary.verdict, summary.gaps) == ("incomplete", ["1..1"])


def test_a_cut_file_before_later_segments(tmp_path: Path, rotated: TinyEngine) -> None:
    path = write_run(tmp_path / "run", rotated.log.rows, rotated.manifest)
    cut(stream(path, "block-0002.arrows"), 0.7)
    summary = reconcile_run(path)
    assert serious(summary) == []
    assert summary.verdict == "incomplete"
    (gap,) = summary.gaps
    first, last = map(int, gap.split(".."))
    assert 9 <= first <= 16
    assert last == 16


def test_an_event_that_is_missing_from_a_whole_trace_is_a_finding(summarise: Summarise) -> None:
    rows = one_request()
    missing = [row for row in rows if row.table != "estimate" and row.seq not in (5, 6, 10)]
    summary = summarise(missing, process_manifest())
    (finding,) = serious(summary)
    assert (finding.rule, finding.severity, finding.count, summary.verdict) == ("I2", "illegal", 1, "findings")
    assert finding.sentence == (
        "3 events of process engine-dp0-pp0-tp0-1-1 are missing between 4 and 11 though none was reported lost."
    )
    assert summary.gaps == ["1..1"]
    assert [f.rule for f in serious(summarise(missing, process_manifest(), closed=False))] == []
    assert [f.rule for f in serious(summarise(missing, process_manifest(), lost_rows=3))] == []


def test_missing_events_are_told_once_per_process(tmp_path: Path) -> None:
    for rank in range(3):
        rows = [row for row in one_request() if not rank or row.table != "request"]
        write_process(tmp_path, rows, process_manifest(started=rank, rank=rank))
    (finding,) = serious(reconcile_run(tmp_path))
    assert finding.count == 2
    assert "process engine-dp1-pp0-tp0-1-1 are missing" in finding.sentence
    assert "process engine-dp2-pp0-tp0-2-2 are missing" in finding.sentence


@pytest.mark.parametrize(
    ("ranks", "labels"),
    [((0,), [""]), ((0, 1), ["dp0: ", "dp1: "]), ((0, 0), [f"dp0 (engine engine-{n}): " for n in (0, 1)])],
)
def test_a_gap_names_the_rank_of_its_engine(tmp_path: Path, ranks: tuple[int, ...], labels: list[str]) -> None:
    for started, rank in enumerate(ranks):
        process = write_process(tmp_path, one_request(), process_manifest(started=started, rank=rank))
        cut(process / "step-0001.arrows", 0.4)
    assert reconcile_run(tmp_path).gaps == [f"{label}1..1" for label in labels]


def test_a_file_without_a_whole_schema_is_a_cut_one(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", one_request(), process_manifest(), closed=False)
    cut(stream(path, "estimate-0001.arrows"), 0.0)
    cut(stream(path, "block-0001.arrows"), 0.01)
    summary = reconcile_run(path)
    assert (summary.verdict, serious(summary)) == ("incomplete", [])
    assert summary.gaps == ["1..1"]


def test_without_a_whole_snapshot_nothing_is_checked(summarise: Summarise) -> None:
    rows = renumbered([row for row in one_request() if row.table != "snapshot"])
    summary = summarise(rows, process_manifest())
    assert summary.gaps == ["1..1"]
    assert summary.verdict == "incomplete"
    assert unknown(summary) == sum(e.requests for e in summary.estimates) > 0


def test_requests_that_run_when_tracing_starts_are_unknown(summarise: Summarise) -> None:
    trace = SmallTrace()
    end = trace.rows.pop()
    trace.seq -= 1
    running = {"prompt_tokens": 10, "max_tokens": 4, "total_tokens": 12, "computed_tokens": 12}
    trace.add("snapshot", kind=SnapshotKind.HOLDER, pool=0, group=0, request_key=0, blocks=[1, 2, 3])
    for key, attempt in ((0, 1), (1, 0)):
        cells = {"request_key": key, "attempt": attempt} | running
        trace.add("snapshot", kind=SnapshotKind.REQUEST, **cells)
    trace.add("snapshot", kind=end.cells["kind"])
    trace.rows[1] = trace.rows[1].changed(free_blocks=12)
    trace.free_blocks = 12
    trace.step = 8
    trace.begins()
    trace.allocates(1, [4])
    trace.admits(1)
    trace.prefills(1, scheduled=12, total=12)
    trace.schedules(running=2)
    for key, blocks in ((0, [1, 2, 3]), (1, [4])):
        trace.ends(key)
        trace.frees(key, blocks)
    trace.completes()
    summary = summarise(trace.rows, process_manifest())
    assert (summary.verdict, summary.gaps, summary.requests) == ("clean", [], 2)
    (life,) = [e for e in summary.estimates if e.source == "vstate"]
    assert (life.requests, life.unknown_requests, life.observed_peak_blocks) == (2, 1, 1)


def test_a_request_that_never_ends_is_unknown(summarise: Summarise) -> None:
    rows: list[Row] = []
    for row in one_request():
        if row.table == "request" and row.cells["attempt"] == 1 and row.cells["kind"] == 7:
            break
        rows.append(row)
    summary = summarise(rows, process_manifest())
    assert summary.verdict == "clean"
    assert [e.unknown_requests for e in summary.estimates] == [1, 1]
