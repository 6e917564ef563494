"""A trace from which one event is missing is never taken for a healthy one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.oracle import replay_by_hand
from support.scenarios import Scenario, run_scenario
from support.traces import Row, write_process
from vstate.reconcile.cache import update_cache
from vstate.reconcile.replay import replayed
from vstate.reconcile.rules import read_rules
from vstate.reconcile.streams import find_run
from vstate.schemas.summary import Summary
from vstate.schemas.tables.block import REFERENCE_DELTA, BlockKind

EFFECTIVE_KINDS = [kind for kind in BlockKind if kind is not BlockKind.MOVE]
PER_KIND = 3

ENGINE = run_scenario(Scenario(seed=18, layout=3, steps=25))
ROWS = ENGINE.log.rows
BOOKS = replay_by_hand(ROWS, ENGINE.manifest).books


def without(index: int) -> list[Row]:
    return ROWS[:index] + ROWS[index + 1 :]


def events_of(kind: BlockKind) -> list[int]:
    """Events, spread over the trace, that the books can tell of.

    A hash of a block whose key another block holds as well changes no count.
    """
    found = [i for i, r in enumerate(ROWS) if r.table == "block" and r.cells["kind"] == kind]
    if kind not in REFERENCE_DELTA:
        found = [i for i in found if replay_by_hand(without(i), ENGINE.manifest).books != BOOKS]
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
        findings = summarise(rows, engine.manifest).findings
        (finding,) = [finding for finding in findings if finding.severity == "illegal"]
        assert finding.rule == "I2"
        assert what in finding.sentence
        assert "step 20" in finding.sentence
