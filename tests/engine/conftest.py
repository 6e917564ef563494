"""Runs of the real vLLM engine, each made once per test session."""

from pathlib import Path

import pytest

from support.runs import CELLS, make_run


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session")
def run_of(tmp_path_factory):
    """Give the run of a cell; it is made when it is first asked for."""
    made = {}

    def run(cell):
        if cell not in made:
            folder = tmp_path_factory.mktemp("runs") / "run"
            made[cell] = make_run(folder, "--model", cell.model, *cell.options)
        return made[cell]

    return run


@pytest.fixture(params=CELLS, ids=str)
def run(request, run_of):
    return run_of(request.param)
