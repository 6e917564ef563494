"""Weights of mixtures of experts against the shapes of their tensors."""

from math import prod

import pytest

from vstate.inventory.adapters.experts import Experts
from vstate.inventory.adapters.weights import Share
from vstate.schemas.errors import VstateError

FLOAT, HALF = 4, 2


def shapes(count, hidden, inner, ranks, *, gated, biased):
    """Shapes of one rank's tensors as vLLM's fused layer has them: a gate stands beside the projection up."""
    up, down = inner // ranks * (2 if gated else 1), inner // ranks
    tensors = [(count, up, hidden), (count, hidden, down)]
    return tensors + ([(count, up), (count, hidden)] if biased else [])


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_experts_are_the_sum_of_their_tensors(ranks, gated, biased):
    experts = Experts(6, 96, 40, gated=gated, biased=biased)
    tensors = shapes(6, 96, 40, ranks, gated=gated, biased=biased)
    assert experts.bytes(Share(ranks), HALF) == HALF * sum(map(prod, tensors))


def test_a_router_is_whole_on_every_rank_and_its_correction_is_float32():
    assert Experts(6, 96, 40).router_bytes(HALF) == 6 * 96 * HALF
    assert Experts(6, 96, 40, correction=True).router_bytes(HALF) == 6 * 96 * HALF + 6 * FLOAT
    assert Experts(6, 96, 40).router_bytes(HALF, router_hidden=128) == 6 * 128 * HALF


def test_experts_of_a_published_model():
    """LFM2.5-8B-A1B has 22 layers of 32 experts, 1792 wide: 7.75 of its 8.47 billion parameters."""
    layer = Experts(32, 2048, 1792).bytes(Share(1), HALF) // HALF
    assert round(22 * layer / 1e9, 2) == 7.75


def test_experts_that_ranks_cannot_share_are_refused():
    with pytest.raises(VstateError, match="Model: 40 inner elements of an expert cannot be shared by 3"):
        Experts(6, 96, 40).bytes(Share(3, "Model"), HALF)
