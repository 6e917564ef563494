"""Every true-size model, worked out from its configuration, is what vLLM builds: layers, groups, weights, media."""

import pytest

from support.live_builds import LiveShapes
from support.static_shapes import differences, engine_shapes, static_shapes
from vstate.tracer.models.full_models import FULL_MODELS

MORE_RANKS = {"step-3.7-flash": 4, "qwen3.6-35b-a3b": 1, "nemotron-3-nano-omni": 2, "deepseek-v3.2": 4}
"""Other numbers of tensor-parallel ranks than the deployment's own."""


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    shapes = LiveShapes(tmp_path_factory.mktemp("live") / "log")
    yield shapes
    shapes.close()


def compare(case, live):
    built = live.build(case)
    return differences(static_shapes(case, built["platform"]), engine_shapes(built))


@pytest.mark.parametrize("name", FULL_MODELS)
def test_a_true_size_model_is_worked_out_as_built(name, live):
    assert compare({"model": f"full/{name}"}, live) == []


@pytest.mark.parametrize(("name", "ranks"), MORE_RANKS.items())
def test_another_share_is_worked_out_as_built(name, ranks, live):
    assert compare({"model": f"full/{name}", "settings": {"tensor_parallel_size": ranks}}, live) == []


@pytest.mark.parametrize("name", ["qwen3.6-27b", "nemotron-3-super", "mimo-v2.5"])
def test_without_its_draft_it_is_worked_out_as_built(name, live):
    assert compare({"model": f"full/{name}", "drafting": "none"}, live) == []
