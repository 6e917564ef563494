"""Runs of the real vLLM engine, each made once per test session."""

import os
from pathlib import Path

import pytest

from support.engine_record import Recorder
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


@pytest.fixture(scope="session")
def every_boundary(tmp_path_factory):
    """Environment in which a run is checked against the engine's tables at every boundary."""
    folder = tmp_path_factory.mktemp("every-boundary")
    (folder / "sitecustomize.py").write_text(EVERY_BOUNDARY)
    return {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="session")
def run_of(tmp_path_factory, every_boundary):
    """Give the run of a cell, checked at every boundary; it is made when it is first asked for."""
    made = {}

    def run(cell):
        if cell not in made:
            folder = tmp_path_factory.mktemp("runs") / "run"
            made[cell] = make_run(folder, "--model", cell.model, *cell.options, **every_boundary)
        else:
            for used in USED:
                used(made[cell])
        return made[cell]

    return run


@pytest.fixture(params=CELLS, ids=str)
def run(request, run_of):
    return run_of(request.param)
