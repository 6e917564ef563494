"""Every tiny model, worked out from its configuration, is what vLLM builds: layers, groups, bytes, weights, media."""

import pytest

from support.static_shapes import differences, engine_shapes, static_shapes
from vstate.inventory.adapters.registry import adapters
from vstate.tracer.models.tiny import TINY_MODELS


@pytest.mark.parametrize("name", TINY_MODELS)
def test_a_tiny_model_is_worked_out_as_built(name, live):
    case = {"model": f"tiny/{name}"}
    built = live.build(case)
    assert differences(static_shapes(case, built["platform"]), engine_shapes(built)) == []


def test_every_tiny_model_has_a_family(live):
    architectures = {
        live.build({"model": f"tiny/{name}"})["inventory"]["settings"]["architecture"] for name in TINY_MODELS
    }
    assert architectures <= set(adapters())
