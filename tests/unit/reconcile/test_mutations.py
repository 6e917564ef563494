"""A trace from which one event is missing is never taken for a healthy one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.oracle import replay_by_hand
from support.scenarios import Scenario, run_scenario
from support.traces import Row, renumber_streams, renumbered, write_process
from vstate.reconcile.cache import RECONCILE_FOLDER, update_cache
from vstate.reconcile.job import reconcile_run
from vstate.reconcile.replay import replayed
from vstate.reconcile.rules import read_rules
from vstate.reconcile.streams import find_run
from vstate.schemas.summary import Summary
from vstate.schemas.tables.block import REFERENCE_DELTA, BlockKind

pytestmark = pytest.mark.long

EFFECTIVE_KINDS = [kind for kind in BlockKind if kind is not BlockKind.MOVE]
PER_KIND = 3

ENGINE = run_scenario(Scenario(seed=18, layout=3, steps=25))
ROWS = ENGINE.log.rows
BOOKS = replay_by_hand(ROWS, ENGINE.manifest).books


def without(index: int) -> list[Row]:
    """The trace less one event, numbered anew: it is the books that must tell."""
    return renumbered(ROWS[:index] + ROWS[index + 1 :])


def books_without(index: int) -> list[tuple[int, int]]:
    return list(replay_by_hand(without(index), ENGINE.manifest).books.values())


def events_of(kind: BlockKind) -> list[int]:
    """Events, spread over the trace, that the books can tell of.

    A hash of a block whose key another block holds as well changes no count.
    """
    found = [i for i, r in enumerate(ROWS) if r.table == "block" and r.cells["kind"] == kind]
    if kind not in REFERENCE_DELTA:
        found = [i for i in found if books_without(i) != list(BOOKS.values())]
    return found[:: max(1, len(found) // PER_KIND)][:PER_KIND]


def test_every_missing_event_is_caught(tmp_path: Path) -> None:
    mutants = {kind: events_of(kind) for kind in EFFECTIVE_KINDS}
    assert all(mutants.values()), "the scenario lacks a kind"
    events = [None, *(index for indices in mutants.values() for index in indices)]
    for number, index in enumerate(events):
        manifest = ENGINE.manifest.model_copy(update={"pid": number, "data_parallel_rank": number})
        write_process(tmp_path, ROWS if index is None else without(index), manifest)
    run = find_run(tmp_path)
    rank_of_engine = {e.engine: e.manifest.data_parallel_rank for e in run.engines}
    caught = set()
    with replayed(run, update_cache(run)) as replay:
        for rule in read_rules():
            if rule.id in ("I2", "I3"):
                found = replay.connection.execute(f"SELECT DISTINCT engine FROM ({rule.query})")
                caught |= {rank_of_engine[engine] for (engine,) in found.fetchall()}
    assert 0 not in caught, "the whole trace is healthy"
    missed = [ROWS[index] for rank, index in enumerate(events) if index and rank not in caught]
    assert missed == []


def test_a_wrong_snapshot_is_caught(summarise: Callable[..., Summary]) -> None:
    engine = run_scenario(Scenario(seed=5, layout=1, steps=30, rotate_every=10))
    assert summarise(engine.log.rows, engine.manifest).verdict == "clean"
    for kind, what in ((2, "references"), (3, "hashes")):
        rows = list(engine.log.rows)
        index = next(
            i
            for i, row in enumerate(rows)
            if row.table == "snapshot" and row.segment == 3 and row.cells["kind"] == kind
        )
        del rows[index]
        findings = summarise(renumbered(rows), engine.manifest).findings
        (finding,) = [finding for finding in findings if finding.severity == "illegal"]
        assert finding.rule == "I2"
        assert what in finding.sentence
        assert "step 20" in finding.sentence


def test_streams_are_numbered_anew_like_rows(tmp_path: Path) -> None:
    """What the engine tests do to the streams of a real run."""
    index = events_of(BlockKind.ALLOC)[1]
    holed = ROWS[:index] + ROWS[index + 1 :]
    process = write_process(tmp_path, holed, ENGINE.manifest)
    (finding,) = [finding for finding in reconcile_run(tmp_path).findings if finding.rule == "I2"]
    assert "though none was reported lost" in finding.sentence
    renumber_streams(process)
    shutil.rmtree(tmp_path / RECONCILE_FOLDER)  # a stream of the same size is not read again
    (finding,) = [finding for finding in reconcile_run(tmp_path).findings if finding.rule == "I2"]
    assert "by replay" in finding.sentence
    assert "though none was reported lost" not in finding.sentence
