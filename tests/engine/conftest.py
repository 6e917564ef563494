"""Runs of the real vLLM engine, each made once per test session."""

import os
from pathlib import Path

import pytest

from support.answers import FILE
from support.engine_record import Recorder
from support.processes import TESTS, site
from support.runs import CELLS, USED, make_run

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several engines at once, each on one core
os.environ["PYTHONFAULTHANDLER"] = "1"  # an engine that crashes in native code leaves a traceback in its log


def pytest_addoption(parser):
    parser.addoption("--matrix-record", metavar="FILE", help="Write what the runs showed, for tools/matrix.py.")


def pytest_configure(config):
    if path := config.getoption("--matrix-record", default=None):
        recorder = Recorder(Path(path))
        USED.append(recorder.used)
        config.pluginmanager.register(recorder)


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.engine)


ANSWERS = "answers.json"
EVERY_BOUNDARY = """
import vstate.tracer.recorder as recorder
boundary = recorder.Recorder.boundary
def with_snapshot(self, now_ns, snapshot, *, idle=False):
    if not (self.snapshot_wanted or self.segment_wanted):
        snapshot()
    boundary(self, now_ns, snapshot, idle=idle)
recorder.Recorder.boundary = with_snapshot
"""
"""Takes the engine's own tables whole right after each `schedule()` and each `update_from_output()`.

Reconcile compares every snapshot with its replay: references of each block by holder, the set of
resident blocks of each request and group, and the hash map of each group.
"""


RECORDED = "import support.answers as answers\nanswers.record()\n"
REPLAYED = "import support.answers as answers\nanswers.replay()\n"


@pytest.fixture(scope="session")
def every_boundary(tmp_path_factory):
    """Environment in which a run is checked against the engine's tables at every boundary."""
    return {"PYTHONPATH": str(site(tmp_path_factory.mktemp("every-boundary") / "site", EVERY_BOUNDARY))}


def _checked(folder, *parts):
    """Environment of an engine that is checked at every boundary and runs ``parts``, which are support of the tests."""
    return {"PYTHONPATH": os.pathsep.join([str(site(folder / "site", EVERY_BOUNDARY, *parts)), str(TESTS)])}


@pytest.fixture(scope="session")
def run_of(tmp_path_factory):
    """Give the run of a cell, checked at every boundary; it is made when it is first asked for.

    What its model answered lies beside it.
    """
    made = {}

    def run(cell):
        if cell not in made:
            folder = tmp_path_factory.mktemp("runs")
            environment = _checked(folder, RECORDED) | {FILE: str(folder / ANSWERS)}
            made[cell] = make_run(folder / "run", "--model", cell.model, *cell.options, **environment)
        else:
            for used in USED:
                used(made[cell])
        return made[cell]

    return run


@pytest.fixture(params=CELLS, ids=str)
def run(request, run_of):
    return run_of(request.param)


@pytest.fixture
def without_a_forward(tmp_path, run_of):
    """Give the run of a cell on the engine without a forward, its model's answers being those of the real one."""

    def run(cell):
        answers = run_of(cell).folder.with_name(ANSWERS)
        environment = _checked(tmp_path, REPLAYED) | {FILE: str(answers)}
        options = ("--model", cell.model, *cell.options, "--engine", "scheduler")
        return make_run(tmp_path / "run", *options, **environment)

    return run
