"""The step-time model: its costs against a plain loop, its fit against coefficients that are known."""

from types import SimpleNamespace

import numpy as np
import pytest

from vstate.schemas.errors import VstateError
from vstate.tracer.engines.step_costs import AttentionCost, ExpertCost, StepCosts
from vstate.tracer.engines.step_time import DEVICES, StepTime, fit, of_device

COSTS = StepCosts(
    weights=1000,
    weight_bytes=2000,
    experts=(ExpertCost(experts=8, chosen=2, weights=8 * 50, weight_bytes=8 * 100),),
    attention=(
        AttentionCost(window_tokens=0, context_bytes=12.0, context_flops=32.0),
        AttentionCost(window_tokens=4, context_bytes=5.0, context_flops=16.0),
    ),
    state_bytes=70,
    encoder_weights=300,
    encoder_bytes=600,
)


def by_hand(computed, scheduled, embeds):
    flops = read = 0.0
    tokens = sum(scheduled)
    for before, count in zip(computed, scheduled, strict=True):
        for token in range(count):
            flops += 2 * 1000 + 2 * 2 * 50
            seen = before + token + 1
            flops += 32.0 * seen + 16.0 * seen * (seen <= 4)
        read += 12.0 * (before + count) + 2 * 70
    missed = 1.0
    for _ in range(tokens):
        missed *= 6 / 8
    read += 2000 + 800 * (1 - missed)
    return flops + 2 * 300 * embeds, read + (600 if embeds else 0)


@pytest.mark.parametrize(("computed", "scheduled", "embeds"), [([0], [3], 0), ([0, 0, 1], [1, 3, 2], 7), ([2], [1], 1)])
def test_costs_equal_a_loop_over_every_token(computed, scheduled, embeds):
    """With contexts inside the window, where the mean over the tokens of a chunk is exact."""
    flops, read = COSTS.of_step(np.array(computed), np.array(scheduled), embeds)
    expected_flops, expected_read = by_hand(computed, scheduled, embeds)
    windowed = 5.0 * sum(min(c + s, 4 + s) for c, s in zip(computed, scheduled, strict=True))
    assert flops == pytest.approx(expected_flops)
    assert read == pytest.approx(expected_read + windowed)


def test_a_window_bounds_what_a_decode_reads():
    attention = AttentionCost(window_tokens=128, context_bytes=10.0, context_flops=1.0)
    one = COSTS.model_copy(
        update={"weights": 0, "weight_bytes": 0, "experts": (), "attention": (attention,), "state_bytes": 0}
    )
    near = one.of_step(np.array([1000]), np.array([1]), 0)
    far = one.of_step(np.array([100_000]), np.array([1]), 0)
    assert near == far == (128.0, 1290.0)


def test_experts_reached_never_pass_all_and_never_shrink():
    expert = ExpertCost(experts=256, chosen=8, weights=1, weight_bytes=1)
    reached = [expert.reached(tokens) for tokens in (1, 2, 16, 256, 100_000)]
    assert reached[0] == pytest.approx(8 / 256)
    assert reached == sorted(reached)
    assert reached[-1] <= 1


def test_fit_finds_the_coefficients_that_made_the_steps():
    generator = np.random.default_rng(1)
    flops, read = generator.uniform(1e9, 1e12, 200), generator.uniform(1e8, 1e10, 200)
    noise = generator.normal(1, 0.01, 200)
    found = fit(flops, read, (0.003 + flops * 2e-15 + read * 4e-13) * noise, "made up")
    assert found.evidence == "fitted"
    assert found.fixed_seconds == pytest.approx(0.003, rel=0.1)
    assert found.seconds_per_flop == pytest.approx(2e-15, rel=0.1)
    assert found.seconds_per_byte == pytest.approx(4e-13, rel=0.1)


def test_fit_gives_no_negative_coefficient():
    generator = np.random.default_rng(2)
    flops, read = generator.uniform(1, 2, 60), generator.uniform(1, 2, 60)
    found = fit(flops, read, np.maximum(0.001, 5.0 - flops), "slower when it does less")
    assert min(found.fixed_seconds, found.seconds_per_flop, found.seconds_per_byte) >= 0


def test_fit_refuses_too_few_steps():
    with pytest.raises(VstateError, match="too few"):
        fit([1, 2], [1, 2], [1, 2], "two steps")


def test_data_sheet_models_say_that_they_are_assumed():
    for device in DEVICES.values():
        model = of_device(device)
        assert model.evidence == "assumed"
        assert "assumed" in model.source
        slower = SimpleNamespace(**device.model_dump())
        assert model.seconds(1e12, 1e9) > 1e12 / slower.flops_per_second + 1e9 / slower.bytes_per_second


def test_seconds_are_linear():
    model = StepTime(fixed_seconds=1, seconds_per_flop=2, seconds_per_byte=3, evidence="fitted", source="")
    assert model.seconds(5, 7) == 1 + 10 + 21
