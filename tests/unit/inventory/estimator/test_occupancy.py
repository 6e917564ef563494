"""Occupancy against vLLM's own managers, led through drawn lives."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("vllm.v1.core.kv_cache_manager")

from support.shadow_lives import Life, attention, engines, states, uncached  # noqa: E402
from vstate.inventory.estimator import occupancy  # noqa: E402

pytestmark = pytest.mark.long

REQUESTS = 4
seeds = st.integers(0, 2**32)
many = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check(engine, seed):
    life = Life(engine, seed)
    for number in range(REQUESTS):
        request, run = life.lead(f"request-{number}")
        assert occupancy(request, run.trajectory, life.rules) == tuple(run.seen)


@many
@given(engine=engines(attention()), seed=seeds)
def test_attention_is_what_its_managers_hold(engine, seed):
    check(engine, seed)


@many
@given(engine=engines(uncached()), seed=seeds)
def test_state_without_a_prefix_cache_is_what_its_managers_hold(engine, seed):
    check(engine, seed)


@many
@given(engine=engines(states()), seed=seeds)
def test_aligned_states_are_what_their_managers_hold(engine, seed):
    check(engine, seed)
