"""The bound against a brute-force model of vLLM's managers.

The model is written from what the managers do, step by step, not from the bound's formula:
it allocates blocks for a chunk after it has dropped what the rules let go.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vstate.inventory.bound import bound_blocks, naive_blocks
from vstate.schemas.component import StateComponent
from vstate.schemas.manifests import EngineSettings, GroupManifest


def group(state_class="full_kv", **fields):
    component = StateComponent(
        id="g0/target/x",
        state_class=state_class,
        owner="target",
        pool=0,
        group=0,
        layers=("l",),
        dtype="bfloat16",
        unit="token",
        useful_bytes_per_unit=1,
        useful_bytes_per_block=1,
        charged_bytes_per_block=1,
        lifetime="request",
        mutability="append_only",
        eviction="lru",
        shareable="always",
        boundary_tokens=1,
    )
    defaults = {"group": 0, "pool": 0, "spec_kind": "x", "manager": "x", "layers": ("l",), "block_tokens": 16}
    return GroupManifest(**(defaults | {"components": (component,)} | fields))


def engine(**fields):
    defaults = {
        "model": "m",
        "architecture": "A",
        "dtype": "bfloat16",
        "cache_dtype": "auto",
        "max_model_len_tokens": 10_000,
        "max_batched_tokens": 64,
        "max_in_flight_tokens": 64,
        "lookahead_tokens": 0,
        "max_num_seqs": 8,
        "scheduler_block_tokens": 16,
        "prefix_caching": True,
        "chunked_prefill": True,
        "reserve_full_prompt": True,
        "watermark_blocks": 0,
        "async_scheduling": False,
        "policy": "fcfs",
    }
    return EngineSettings(**(defaults | fields))


def steps(prompt, output, largest_chunk, generator):
    """Chunks of one life: prompt chunks of any size up to the budget, then one token a step."""
    computed = 0
    while computed < prompt:
        chunk = min(generator.randint(1, largest_chunk), prompt - computed)
        yield computed, chunk
        computed += chunk
    for _ in range(output - 1):
        yield computed, 1
        computed += 1


def window_peak(prompt, output, window, block, largest_chunk, generator):
    """`SlidingWindowManager`: drop blocks wholly below the window, then cover the chunk."""
    held, peak = set(), 0
    for computed, chunk in steps(prompt, output, largest_chunk, generator):
        first_needed = max(0, computed - window + 1)
        held = {b for b in held if b >= first_needed // block}
        held |= {b for b in range(first_needed // block, -(-(computed + chunk) // block))}
        peak = max(peak, len(held))
    return peak


def full_peak(prompt, output, block):
    return -(-(prompt + max(output - 1, 0)) // block)


lengths = {"prompt": st.integers(1, 400), "output": st.integers(1, 200)}


@given(**lengths, block=st.sampled_from([16, 32, 128]))
def test_full_attention_is_exact(prompt, output, block):
    bound = bound_blocks(group(block_tokens=block), engine(), prompt, output)
    assert bound == full_peak(prompt, output, block)


@settings(max_examples=300)
@given(
    **lengths,
    window=st.integers(1, 100),
    block=st.sampled_from([8, 16, 32]),
    chunk=st.integers(1, 64),
    seed=st.integers(0, 1000),
)
def test_window_bound_is_never_passed(prompt, output, window, block, chunk, seed):
    peak = window_peak(prompt, output, window, block, chunk, random.Random(seed))
    limits = engine(max_in_flight_tokens=chunk)
    bound = bound_blocks(group("sliding_kv", block_tokens=block, window_tokens=window), limits, prompt, output)
    assert peak <= bound


def test_window_bound_is_attained():
    limits = engine(max_in_flight_tokens=33)
    bound = bound_blocks(group("sliding_kv", window_tokens=34), limits, 400, 1)
    peaks = {window_peak(400, 1, 34, 16, 33, random.Random(seed)) for seed in range(300)}
    assert max(peaks) == bound


@pytest.mark.parametrize(
    ("mode", "speculative", "checkpoint", "prompt", "output", "expected"),
    [
        ("none", 0, 0, 100, 10, 1),
        ("none", 2, 0, 100, 10, 3),
        ("align", 0, 0, 10, 6, 1),
        ("align", 0, 0, 16, 1, 1),
        ("align", 0, 0, 16, 2, 2),
        ("align", 0, 0, 500, 5, 2),
        ("align", 2, 1, 500, 5, 5),
    ],
)
def test_state_slots(mode, speculative, checkpoint, prompt, output, expected):
    slots = group("recurrent", state_mode=mode, speculative_blocks=speculative, checkpoint_blocks=checkpoint)
    assert bound_blocks(slots, engine(), prompt, output) == expected


def test_a_hit_inside_a_block_holds_source_and_copy():
    whole = bound_blocks(group(), engine(), 100, 5)
    assert bound_blocks(group(partial_hits=True), engine(), 100, 5) == whole + 1


def test_lookahead_and_model_length_limit_the_tokens():
    assert bound_blocks(group(), engine(lookahead_tokens=3), 14, 1) == 2
    assert bound_blocks(group(), engine(max_model_len_tokens=64), 60, 100) == 4


def most_slots(prompt, output, drafts, lookahead, ahead):
    """Most slots over all ways in which drafts are accepted, with up to ``ahead`` steps in flight.

    Rules of `Scheduler.schedule`: a step is one token and its drafts; another one is put in flight unless those in
    flight are sure to reach the last token even where every draft is refused.
    """
    seen, most, todo = set(), prompt + lookahead, [(1, 0)]
    while todo:
        state = produced, flying = todo.pop()
        if state in seen or produced >= output:
            continue
        seen.add(state)
        if flying < ahead and (not flying or produced + flying < output):
            computed = prompt + produced - 1 + flying * (1 + drafts)
            most = max(most, computed + 1 + drafts + lookahead)
            todo.append((produced, flying + 1))
        if flying:
            todo += [(produced + 1 + accepted, flying - 1) for accepted in range(drafts + 1)]
    return most


@pytest.mark.parametrize("ahead", [1, 2])
@pytest.mark.parametrize(("drafts", "lookahead"), [(0, 0), (1, 1), (3, 3), (3, 0)])
@pytest.mark.parametrize("output", [1, 2, 3, 9])
def test_drafts_are_scheduled_past_the_end(output, drafts, lookahead, ahead):
    """Equal, so that no way of accepting passes the bound and one attains it."""
    limits = engine(draft_tokens=drafts, lookahead_tokens=lookahead, max_in_flight_tokens=64 * ahead)
    bound = bound_blocks(group(block_tokens=1), limits, 20, output)
    most = most_slots(20, output, drafts, lookahead, ahead)
    assert bound >= most
    if drafts == 0 or ahead == 1 or output > 2:
        assert bound == most


def test_naive_knows_attention_only():
    assert naive_blocks(group(), 100, 28) == 8
    assert naive_blocks(group("sliding_kv", window_tokens=16), 100, 28) == 8
    assert naive_blocks(group("recurrent", state_mode="align"), 100, 28) == 0
    assert naive_blocks(group("conv", state_mode="none"), 100, 28) == 0


def test_each_step_in_flight_keeps_one_more_state():
    slots = group("recurrent", state_mode="align")
    ahead = engine(max_in_flight_tokens=128)
    assert bound_blocks(slots, ahead, 500, 5) == 3
    assert bound_blocks(slots, ahead, 20, 5) == 2
