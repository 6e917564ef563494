"""Tracing switched off and on in an engine under load, beside a second engine that is always traced."""

import json
import os

import pytest

from support.processes import IN_PROCESS, TESTS, succeeds
from support.runs import reconciled

TURNS = {20: "off", 35: "on", 50: "off", 65: "on"}
"""Each span begins and ends while requests run and wait."""


@pytest.fixture(scope="module")
def switched(tmp_path_factory, every_boundary):
    """Both engines' answers, and the run."""
    folder = tmp_path_factory.mktemp("switched")
    path = f"{TESTS}{os.pathsep}{every_boundary['PYTHONPATH']}"
    environment = os.environ | IN_PROCESS | {"VSTATE_TRACE_RUN": str(folder / "run"), "PYTHONPATH": path}
    script = TESTS / "support" / "switched_engines.py"
    succeeds([script, "gemma3", json.dumps(TURNS), folder / "answer"], environment)
    return json.loads((folder / "answer").read_text()), reconciled(folder / "run")


def test_tokens_are_the_same(switched):
    (always, turned), _ = switched
    assert len(always["tokens"]) > 20
    assert turned["tokens"] == always["tokens"]


def test_nothing_of_vstate_is_on_the_engine_while_tracing_is_off(switched):
    (always, turned), _ = switched
    assert turned["turns"] == {}, "a turn never happened"
    states = [on for on, _ in turned["hooks"]]
    turned_at = [number + 1 for number in range(1, len(states)) if states[number] is not states[number - 1]]
    assert turned_at == sorted(TURNS), "it must turn before the step it is asked before"
    hooks_when_on = {tuple(names) for on, names in turned["hooks"] if on}
    assert len(hooks_when_on) == 1, "each span must have the same hooks"
    assert len(hooks_when_on.pop()) > 15
    assert all(names == [] for on, names in turned["hooks"] if not on)
    assert all(on for on, _ in always["hooks"])


def test_each_span_and_each_engine_has_a_process_folder_of_its_own(switched):
    (always, turned), run = switched
    written = {path.name for path in (run.folder / "events").glob("engine-*")}
    assert len(always["folders"]) == 1
    assert len(turned["folders"]) == 3
    assert written == set(always["folders"] + turned["folders"])
    ids = {json.loads((run.folder / "events" / name / "process.json").read_text())["engine_id"] for name in written}
    assert len(ids) == 4


def test_replay_equals_the_tables_at_every_boundary_of_every_span(switched):
    _, run = switched
    assert run.illegal == []
    assert run.summary["verdict"] == "clean"
    assert run.summary["gaps"] == []
    assert run.summary["dropped"] == 0


def test_requests_that_lived_before_a_span_are_unknown_and_the_others_judged(switched):
    _, run = switched
    estimates = run.estimates("vstate", "life")
    assert estimates
    assert all(e["undercount_requests"] == 0 for e in estimates)
    # The engine that is traced all the time leaves none unknown.
    assert all(0 < e["unknown_requests"] < e["requests"] - 22 for e in estimates)
