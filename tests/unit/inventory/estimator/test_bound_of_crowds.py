"""The bound against what vLLM's own schedulers let requests of a crowd hold."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("vllm.v1.core.sched.scheduler")

from support.shadow_lives import attention, engines, states, uncached  # noqa: E402
from support.shadow_scheduler import Crowd  # noqa: E402
from vstate.inventory.estimator import bound  # noqa: E402
from vstate.inventory.estimator.rules import Kind  # noqa: E402

pytestmark = pytest.mark.long

lengths = st.lists(st.tuples(st.integers(1, 150), st.integers(1, 40)), min_size=1, max_size=6)
seeds = st.integers(0, 2**32)
many = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check(engine, requests, seed):
    requests = [(min(prompt, engine.model_len - 1), output) for prompt, output in requests]
    crowd = Crowd(engine, seed)
    for held in crowd.run(requests):
        limits = bound(held.request, crowd.rules)
        assert all(map(int.__ge__, limits, held.peak)), (held, limits)


@many
@given(engine=engines(attention(), crowd=True), requests=lengths, seed=seeds)
def test_attention_never_holds_more(engine, requests, seed):
    check(engine, requests, seed)


@many
@given(engine=engines(uncached(), crowd=True), requests=lengths, seed=seeds)
def test_state_without_a_prefix_cache_never_holds_more(engine, requests, seed):
    check(engine, requests, seed)


@many
@given(engine=engines(states(), crowd=True), requests=lengths, seed=seeds)
def test_aligned_states_never_hold_more(engine, requests, seed):
    check(engine, requests, seed)


@many
@given(
    engine=engines(st.one_of(attention(), states()), crowd=True),
    prompt=st.integers(1, 150),
    output=st.integers(1, 40),
    seed=seeds,
)
def test_a_request_alone_holds_just_so_much(engine, prompt, output, seed):
    """No over-count for a request that ends by length, undrafted, with nothing shared and a prompt of one chunk.

    Left out are what only a hit can do (source and copy of a block of keys and values), states exported from inside a
    chunk, which need a chunk that begins after the first block, and windows beside states, whose boundaries cut the
    prompt.
    """
    assume(not engine.drafts and not engine.asynchronous)
    engine.chunk = 256
    crowd = Crowd(engine, seed)
    ((request, peak),) = crowd.run([(min(prompt, engine.model_len - 1), output)])
    limits = bound(request, crowd.rules)
    cut = any(rule.kind is Kind.STATES for rule in crowd.rules.groups)
    for rule, limit, held in zip(crowd.rules.groups, limits, peak, strict=True):
        paged = rule.kind is Kind.PAGED
        if not (rule.checkpoint or (paged and rule.copies) or (cut and rule.window >= 0)):
            assert limit == held
