"""The bound against every choice a scheduler has, for small numbers, and the vectorised bound against it.

What is held at a moment is counted block by block from what each kind of attention still needs, not by the bound's
formulas.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.admissible import Choices, moments
from support.needed_blocks import KINDS, engine, engine_of, group, held
from vstate.inventory.estimator import RequestShape, Rules, bound, bound_blocks, bounds, naive_blocks


@st.composite
def small_choices(draw):
    asynchronous = draw(st.booleans())
    prefill, output = draw(st.integers(1, 14)), draw(st.integers(1, 7))
    drafts = draw(st.integers(0, 2))
    return Choices(
        prefill=prefill,
        end=prefill + output,
        chunk=draw(st.integers(1, 6)),
        steps=draw(st.integers(2, 3)) if asynchronous else draw(st.integers(1, 2)),
        asynchronous=asynchronous,
        drafts=drafts,
        lookahead=draw(st.sampled_from([0, drafts])),
        model_len=draw(st.sampled_from([1000, prefill + 1, prefill + 3])),
        caching=draw(st.booleans()),
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=120, deadline=None)
@given(choices=small_choices(), block=st.integers(1, 4), size=st.integers(1, 6))
def test_the_bound_is_the_most_over_all_choices(kind, choices, block, size):
    """Equal: no choice passes the bound, and one attains it."""
    size = size * block if kind == "chunk" else size
    most = max(held(kind, size, block, choices.prefill, *moment) for moment in moments(choices))
    found = bound_blocks(KINDS[kind](block, size), engine_of(choices), choices.prefill, choices.end - choices.prefill)
    assert found == most


def test_a_resumed_request_is_bounded_by_what_it_prefills_again():
    rules = Rules.of([group("sliding_kv", window_tokens=32)], engine(max_batched_tokens=512, max_in_flight_tokens=512))
    (first,), (again,) = bound(RequestShape(100, 1000), rules), bound(RequestShape(100, 1000, 600), rules)
    assert first == 7
    assert again == 512 // 16 + 32 // 16 + 1


@st.composite
def any_groups(draw):
    block = draw(st.integers(1, 40))
    pages = st.sampled_from(
        [
            group(block_tokens=block),
            group(block_tokens=block, partial_hits=True, hash_block_tokens=4),
            group("sliding_kv", block_tokens=block, window_tokens=draw(st.integers(1, 90)), retained_tokens=2),
            group("sliding_kv", block_tokens=block, attention_chunk_tokens=3 * block),
            group(block_tokens=block, decode_window_tokens=draw(st.integers(1, 90))),
            group("recurrent", block_tokens=block, state_mode="none", speculative_blocks=2),
            group("recurrent", block_tokens=block, state_mode="align", draft=True, hash_block_tokens=4),
            group("recurrent", block_tokens=block, state_mode="align", checkpoint_blocks=1, partial_hits=True),
            group("conv", fixed_blocks=1),
            group("cross_kv", block_tokens=block, encoder_tokens=100),
        ]
    )
    return draw(st.lists(pages, min_size=1, max_size=5))


@settings(max_examples=300, deadline=None)
@given(
    groups=any_groups(),
    lengths=st.lists(st.tuples(st.integers(1, 500), st.integers(1, 200), st.integers(0, 60)), min_size=1, max_size=20),
    encoder=st.sampled_from([None, 17]),
    chunk=st.integers(1, 300),
    steps=st.integers(1, 3),
    drafts=st.integers(0, 4),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    model_len=st.integers(300, 800),
    retention=st.sampled_from([None, 0]),
)
def test_the_vectorised_bound_is_equal(groups, lengths, encoder, chunk, steps, drafts, flags, model_len, retention):
    ahead, caching, writes = flags
    limits = engine(
        max_batched_tokens=chunk,
        max_in_flight_tokens=chunk * steps,
        draft_tokens=drafts,
        lookahead_tokens=drafts * writes,
        async_scheduling=ahead,
        prefix_caching=caching,
        max_model_len_tokens=model_len,
        retention_interval_tokens=retention,
    )
    rules = Rules.of(groups, limits)
    prompt, output, produced = (np.array(column) for column in zip(*lengths, strict=True))
    prompt = np.minimum(prompt, model_len - 1)
    produced = np.minimum(np.minimum(produced, output - 1), model_len - 1 - prompt)
    known = np.where(produced > 0, prompt + produced, 0)
    encoders = None if encoder is None else np.full(len(lengths), encoder)
    found = bounds(prompt, output, rules, known, encoders)
    expected = [
        bound(RequestShape(int(p), int(o), int(k), encoder), rules)
        for p, o, k in zip(prompt, output, known, strict=True)
    ]
    assert found.tolist() == [list(each) for each in expected]


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
    # Without aligned states a block is as long as the longest request.
    block = {"none": 10_000, "align": 16}[mode]
    own = {"speculative_blocks": speculative, "checkpoint_blocks": checkpoint}
    slots = group("recurrent", state_mode=mode, block_tokens=block, **own)
    assert bound_blocks(slots, engine(), prompt, output) == expected


def test_a_hit_inside_a_block_holds_source_and_copy():
    whole = bound_blocks(group(), engine(), 100, 5)
    assert bound_blocks(group(partial_hits=True), engine(), 100, 5) == whole + 1


def test_lookahead_and_model_length_limit_the_tokens():
    assert bound_blocks(group(), engine(lookahead_tokens=3), 14, 1) == 2
    assert bound_blocks(group(), engine(max_model_len_tokens=64), 60, 100) == 4


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
