"""docs/matrix.md: what its renderer says of a record, and that the page is that of the record beside it."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from support.engine_record import Recorder, compared_everywhere, drafted, in_flight
from vstate.schemas.tables.snapshot import SnapshotKind
from vstate.schemas.tables.step import StepKind
from vstate.tracer.models.tiny import TINY_MODELS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "matrix.md"
RECORD = ROOT / "docs" / "matrix.json"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("matrix", ROOT / "tools" / "matrix.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def a_run(model, features, **changed):
    return {
        "vllm": "0.32.0",
        "model": model,
        "forward": "real",
        "stand_ins": [],
        "clean": True,
        "every_boundary": True,
        "features": features,
        "tests": {"tests/engine/test_a.py::test_a": "passed"},
    } | changed


def cells(tool, *runs):
    """The table of a page for these runs: cells by model and head."""
    return read_cells(tool.page({"cpu_flags": ["avx512f"], "runs": list(runs)}))


def read_cells(page):
    (_, *sections) = page.split("| model | replay equals")
    lines = ("| model | replay equals" + sections[0]).split("\n\n")[0].splitlines()
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head = [re.sub(r" \[\d+\]", "", name) for name in head]
    return {row[0].strip("`"): dict(zip(head, row, strict=True)) for row in rows}


def test_a_run_that_passed_is_shown_and_nothing_else(tool):
    page = cells(tool, a_run("tiny/qwen3", ["prefix_hits", "aborts"]))
    assert set(page) == {f"tiny/{name}" for name in TINY_MODELS}
    mine = page["tiny/qwen3"]
    assert (mine["prefix hit"], mine["aborted"], mine["replay equals"]) == (
        "forward",
        "forward",
        "tables at every boundary",
    )
    said = [cell for row in page.values() for cell in row.values() if "forward" in cell]
    assert len(said) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"tests": {"a": "passed", "b": "failed"}},
        {"tests": {"a": "skipped"}},
        {"tests": {}},
        {"clean": False},
    ],
    ids=["a failed test", "a skipped test", "no test", "not clean"],
)
def test_what_was_not_shown_is_not_said(tool, changed):
    mine = cells(tool, a_run("tiny/qwen3", ["prefix_hits"], **changed))["tiny/qwen3"]
    assert (mine["prefix hit"], mine["replay equals"]) == ("·", "·")


def test_one_failed_run_takes_nothing_from_another(tool):
    failed = a_run("tiny/qwen3", ["prefix_hits", "priority"], tests={"a": "failed"})
    mine = cells(tool, a_run("tiny/qwen3", ["prefix_hits"]), failed)["tiny/qwen3"]
    assert (mine["prefix hit"], mine["priority"]) == ("forward", "·")


def test_a_run_without_a_forward_or_with_a_stand_in_says_so(tool):
    scheduler = a_run("tiny/gemma3", ["aborts", "steps_in_flight"], forward="scheduler", every_boundary=False)
    stood_in = a_run("tiny/qwen3.5-mtp", ["prefix_hits", "drafts"], stand_ins=["the copies"])
    page = cells(tool, scheduler, stood_in)
    assert page["tiny/gemma3"]["aborted"] == "scheduler"
    assert page["tiny/gemma3"]["two steps in flight"] == "scheduler"
    assert page["tiny/gemma3"]["replay equals"] == "counts at every boundary"
    assert re.fullmatch(r"forward\* \[\d\]", page["tiny/qwen3.5-mtp"]["prefix hit"])
    assert page["tiny/qwen3.5-mtp"]["drafts"] == "forward*"


def test_a_reason_stands_at_each_cell_that_cannot_run(tool):
    page = tool.page({"cpu_flags": [], "runs": []})
    (note,) = re.findall(r"^(\d+)\. a GatedDeltaNet model that drafts", page, re.MULTILINE)
    table = read_cells(page)
    for name in ("tiny/qwen3.5-mtp", "tiny/qwen3.5-vl-mtp"):
        assert table[name]["prefix hit"] == f"· [{note}]"
    assert table["tiny/qwen3"]["prefix hit"] == "·"
    assert "two steps in flight [1]" in page
    assert table["tiny/qwen3"]["media"] == "–"


@pytest.mark.parametrize("feature", ["prefix_hits", "steps_in_flight"])
def test_a_reason_that_a_run_disproves_is_an_error(tool, feature):
    with pytest.raises(ValueError, match="declared to be impossible"):
        cells(tool, a_run("tiny/qwen3.5-mtp", [feature]))


def test_a_feature_without_a_column_is_an_error(tool):
    with pytest.raises(ValueError, match="lunch"):
        cells(tool, a_run("tiny/qwen3", ["lunch"]))


def test_the_page_names_every_model_and_configuration(tool):
    page = PAGE.read_text()
    for name in TINY_MODELS:
        assert f"`tiny/{name}`" in page
    for path in (ROOT / "tracer" / "models" / "tiny").glob("*.json"):
        assert f"`{path.name}`" in page, "make docs/matrix.md again: make matrix"


def test_the_page_is_that_of_the_record(tool):
    """Each `forward` on the page is a passed test of the record: the page holds nothing else."""
    record = json.loads(RECORD.read_text())
    assert PAGE.read_text() == tool.page(record), "make docs/matrix.md again: make matrix"
    heads = {head: feature for feature, head in tool.FEATURES.items()}
    passed = {
        (run["model"], feature.partition(":")[0])
        for run in record["runs"]
        if run["forward"] == "real" and run["clean"] and set(run["tests"].values()) == {"passed"}
        for feature in run["features"]
    }
    said = {
        (model, heads[head])
        for model, row in read_cells(PAGE.read_text()).items()
        for head, cell in row.items()
        if head in heads and cell.startswith("forward")
    }
    assert said
    assert said == passed


class Report:
    def __init__(self, nodeid, outcome, when="call", runs=()):
        self.nodeid, self.outcome, self.when = nodeid, outcome, when
        self.failed = outcome == "failed"
        self.user_properties = [["run", {"run": run, "model": "tiny/qwen3"}] for run in runs]


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([Report("t", "passed", "setup", "r"), Report("t", "passed", "call", "r")], {"t": "passed"}),
        ([Report("t", "passed", "call", "r"), Report("t", "failed", "teardown", "r")], {"t": "failed"}),
        ([Report("t", "failed", "setup", "r")], {"t": "failed"}),
        ([Report("t", "passed", "call", "r"), Report("u", "failed", "call", "r")], {"t": "passed", "u": "failed"}),
    ],
)
def test_how_a_test_ended_is_recorded_with_the_run_it_used(tmp_path, reports, expected):
    recorder = Recorder(tmp_path / "record.json")
    for report in reports:
        recorder.pytest_runtest_logreport(report)
    (line,) = recorder.lines()
    assert line["tests"] == expected
    assert "run" not in line


def steps(*kinds, tokens=1, running=1):
    return [
        {"seq": 10 * n, "step": n, "kind": kind, "scheduled_tokens": tokens, "running": running}
        for n, kind in enumerate(kinds, 1)
    ]


def test_what_is_read_from_a_trace():
    a, b = StepKind.SCHEDULED, StepKind.COMPLETED
    assert in_flight(steps(a, a, b, b))
    assert not in_flight(steps(a, b, a, b))
    assert drafted(steps(a, tokens=3, running=1), [])
    assert not drafted(steps(a, tokens=3, running=3), [])
    assert not drafted(steps(a, tokens=3, running=1), [{"step": 1, "scheduled_tokens": 3}])
    ends = [{"seq": seq, "kind": SnapshotKind.END} for seq in (11, 25)]
    assert compared_everywhere(steps(a, b), ends)
    assert not compared_everywhere(steps(a, b, a), ends)
    assert not compared_everywhere(steps(a, b), ends[1:])
