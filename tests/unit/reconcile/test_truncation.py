"""A stream that was cut anywhere gives gaps and unknown requests, and never a finding."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.scenarios import LAYOUTS, Scenario, run_scenario
from support.tiny_engine import TinyEngine
from support.traces import cut, cut_bytes, serious, stream, write_process, write_run
from vstate.reconcile.cache import update_cache
from vstate.reconcile.job import reconcile_run
from vstate.reconcile.replay import replayed
from vstate.reconcile.streams import find_run
from vstate.schemas.manifests import EVENTS_FOLDER, PROCESS_FILE, ProcessManifest, read_manifest, write_manifest
from vstate.schemas.tables.request import RequestKind

pytestmark = pytest.mark.long


def test_a_hole_before_a_closing_snapshot_in_the_same_segment(tmp_path: Path) -> None:
    """The tracer ends each trace with a snapshot; what is missing before it is a gap all the same."""
    engine = run_scenario(Scenario(seed=3, layout=2, steps=30, drained=False, snapshot_every=30))
    path = write_run(tmp_path / "run", engine.log.rows, engine.manifest)
    cut_bytes(stream(path, "block-0001.arrows"), 100)
    summary = reconcile_run(path)
    assert (summary.verdict, serious(summary)) == ("incomplete", [])
    (gap,) = summary.gaps
    assert gap.endswith("..30")


@pytest.fixture(scope="module", params=[0, 6, 1], ids=["no more", "some", "one per step"])
def closing_snapshots(request: pytest.FixtureRequest) -> TinyEngine:
    """Runs that end in a snapshot, with no, some or many others before it."""
    every = request.param
    engine = run_scenario(Scenario(seed=7, layout=3, steps=20, drained=False, snapshot_every=every, rotate_every=13))
    engine.snapshot()
    return engine


def test_no_truncated_stream_gives_a_finding(tmp_path: Path, closing_snapshots: TinyEngine) -> None:
    """Each stream of a run that closed in order, cut at drawn places: one engine per cut."""
    engine, draw = closing_snapshots, Random(11)
    cuts = 0
    whole = write_process(tmp_path / "whole", engine.log.rows, engine.manifest)
    manifest = read_manifest(whole / PROCESS_FILE, ProcessManifest)
    for name in sorted(path.name for path in whole.glob("*.arrows")):
        for _ in range(2):
            process = tmp_path / EVENTS_FOLDER / f"engine-{cuts:03d}"
            shutil.copytree(whole, process)
            write_manifest(process / PROCESS_FILE, manifest.model_copy(update={"data_parallel_rank": cuts}))
            cut_bytes(process / name, draw.randrange(1, (process / name).stat().st_size))
            cuts += 1
    run = find_run(tmp_path)
    cache = update_cache(run)
    assert all(any(part.truncated for part in cache.parts(number)) for number in range(cuts))
    summary = reconcile_run(tmp_path)
    assert serious(summary) == []
    assert summary.verdict == "incomplete"
    assert {gap.split(":")[0] for gap in summary.gaps} <= {f"dp{number}" for number in range(cuts)}


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    st.integers(0, 1000),
    st.integers(0, len(LAYOUTS) - 1),
    st.sampled_from((0, 1, 5)),
    st.integers(0, 9),
    st.floats(0, 1),
)
def test_no_drawn_truncation_gives_a_finding(seed: int, layout: int, every: int, table: int, share: float) -> None:
    engine = run_scenario(Scenario(seed, layout, steps=25, drained=bool(seed % 2), snapshot_every=every))
    engine.snapshot()
    with tempfile.TemporaryDirectory() as folder:
        path = write_run(Path(folder), engine.log.rows, engine.manifest)
        streams = sorted(stream(path, "process.json").parent.glob("*.arrows"))
        cut(streams[table % len(streams)], min(share, 0.999))
        summary = reconcile_run(path)
    assert serious(summary) == []
    assert summary.verdict == "incomplete"


def test_many_holes_and_snapshots_are_divided_once(tmp_path: Path) -> None:
    """With a snapshot at each step and half of a stream cut away, each step starts an epoch."""
    engine = run_scenario(Scenario(seed=5, layout=0, steps=120, drained=False, snapshot_every=1))
    path = write_run(tmp_path / "run", engine.log.rows, engine.manifest)
    cut(stream(path, "step-0001.arrows"), 0.5)
    run = find_run(path)
    with replayed(run, update_cache(run)) as replay:
        ((epochs,),) = replay.connection.execute("SELECT count(*) FROM epochs").fetchall()
        assert epochs > 50
        (gap,) = replay.gaps
    first, last = map(int, gap.split(".."))
    assert 30 < first < 90
    assert last == 120


def test_requests_alive_in_a_gap_of_a_cut_stream_are_unknown(tmp_path: Path) -> None:
    engine = TinyEngine((40,), run_scenario(Scenario(steps=1)).groups)
    ended = engine.arrive(8, 2)
    engine.drain()
    engine.log.hand_over()
    across = engine.arrive(8, 6)
    engine.step()
    engine.log.hand_over()
    engine.step()
    engine.log.hand_over()
    engine.snapshot()
    engine.drain()
    engine.snapshot()
    after = engine.arrive(8, 2)
    engine.drain()
    rows = [row for row in engine.log.rows if row.table != "step" or row.chunk != across_chunk(engine, across.key)]
    path = write_run(tmp_path / "run", rows, engine.manifest, closed=False)
    summary = reconcile_run(path)
    assert serious(summary) == []
    (life,) = [e for e in summary.estimates if e.source == "vstate"]
    assert (life.requests, life.unknown_requests) == (3, 1)
    assert {ended.attempt, after.attempt} == {1}


def across_chunk(engine: TinyEngine, key: int) -> int:
    """The chunk in which a request was admitted."""
    rows = (row for row in engine.log.rows if row.table == "request" and row.cells["request_key"] == key)
    return next(row.chunk for row in rows if row.cells["kind"] == RequestKind.ADMIT)
