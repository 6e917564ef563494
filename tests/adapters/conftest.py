"""Builds of vLLM on the meta device, each made once per session."""

from pathlib import Path

import pytest

from support.live_builds import LiveShapes


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.adapters)


@pytest.fixture(scope="session")
def live(tmp_path_factory):
    """Builds cases."""
    shapes = LiveShapes(tmp_path_factory.mktemp("live") / "log")
    yield shapes
    shapes.close()
