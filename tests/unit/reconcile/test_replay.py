"""The SQL replay against a plain loop, on drawn traces."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.oracle import OracleReplay, replay_by_hand
from support.scenarios import LAYOUTS, Scenario, run_scenario
from support.traces import write_run
from vstate.reconcile.cache import update_cache
from vstate.reconcile.replay import replayed
from vstate.reconcile.rules import apply_rule, read_rules
from vstate.reconcile.streams import find_run

pytestmark = pytest.mark.long

SCENARIOS = st.builds(
    Scenario,
    seed=st.integers(0, 10_000),
    layout=st.integers(0, len(LAYOUTS) - 1),
    steps=st.integers(1, 40),
    rotate_every=st.sampled_from((0, 7)),
    lose_at=st.sampled_from((0, 0, 5, 12)),
    drained=st.booleans(),
)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(SCENARIOS)
def test_replay_equals_a_plain_loop(scenario: Scenario) -> None:
    engine = run_scenario(scenario)
    expected = replay_by_hand(engine.log.rows, engine.manifest)
    with tempfile.TemporaryDirectory() as folder:
        path = write_run(Path(folder), engine.log.rows, engine.manifest)
        run = find_run(path)
        with replayed(run, update_cache(run)) as replay:
            connection = replay.connection
            _check_books(connection, expected, everything=not scenario.lose_at)
            _check_peaks(connection, expected, everything=not scenario.lose_at)
            found = [f for rule in read_rules()[1:] for f in apply_rule(connection, rule)]
            assert found == [], "the engine is healthy"


def _check_books(connection: Any, expected: OracleReplay, everything: bool) -> None:
    rows = connection.execute(
        "SELECT seq, pool, replayed_free_blocks, replayed_cached_hashes, engine_free_blocks, "
        "engine_cached_hashes FROM books WHERE boundary <> 'snapshot'"
    ).fetchall()
    for seq, pool, free_blocks, cached_hashes, engine_free, engine_cached in rows:
        assert (free_blocks, cached_hashes) == expected.books[seq, pool], (seq, pool)
        assert (free_blocks, cached_hashes) == (engine_free, engine_cached), (seq, pool)
    if everything:
        assert {(row[0], row[1]) for row in rows} == expected.books.keys()


def _check_peaks(connection: Any, expected: OracleReplay, everything: bool) -> None:
    rows = connection.execute(
        'SELECT request_key, attempt, "group", scope, observed_blocks FROM peaks WHERE NOT unknown'
    ).fetchall()
    for request, attempt, group, scope, blocks in rows:
        assert blocks == expected.peaks.get(((request, attempt), group, scope), 0), request
    if everything:
        assert {(row[0], row[1]) for row in rows} == expected.admitted
