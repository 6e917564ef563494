"""Tokens of hashed blocks, against a second way to draw them: one token at a time, in whole numbers without a limit."""

import random

import pytest

from vstate.schemas.workload import HashedBlocks, Length, Segment, Trigger, WorkloadRequest
from vstate.tracer.workloads.prompts import PromptSource
from vstate.tracer.workloads.tokens import FIRST_TOKEN, TokenSource

WORD = 2**64


def splitmix64(state):
    """The value that SplitMix64 makes of a state, as Vigna writes it down (prng.di.unimi.it/splitmix64.c)."""
    z = (state + 0x9E3779B97F4A7C15) % WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def one_by_one(seed, vocabulary, ids, block_tokens):
    tokens = []
    for block in ids:
        start = splitmix64((block + seed * 0xD1342543DE82EF95) % WORD)
        for place in range(block_tokens):
            drawn = splitmix64((start + place * 0x9E3779B97F4A7C15) % WORD)
            tokens.append(FIRST_TOKEN + drawn % (vocabulary - FIRST_TOKEN))
    return tokens


def spelled_out(ranges):
    return [first + i for first, count in ranges for i in range(count)]


def test_the_second_way_is_splitmix64():
    """Its first outputs for the state 1234567, as published with xoshiro in many a library's tests."""
    states = [(1234567 + i * 0x9E3779B97F4A7C15) % WORD for i in range(3)]
    assert [splitmix64(state) for state in states] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@pytest.mark.parametrize("seed", [0, 1, 2**40 + 3])
def test_every_token_follows_from_seed_block_and_place(seed):
    generator = random.Random(seed)
    for _ in range(20):
        ranges = [(generator.randrange(2 ** generator.choice((4, 40, 63))), generator.randrange(1, 5)) for _ in "abc"]
        block_tokens, vocabulary = generator.randrange(1, 40), generator.randrange(FIRST_TOKEN + 1, 200_000)
        expected = one_by_one(seed, vocabulary, spelled_out(ranges), block_tokens)
        length = generator.randrange(len(expected) - block_tokens + 1, len(expected) + 1)
        found = TokenSource(seed, vocabulary).hashed(ranges, block_tokens, length)
        assert found == expected[:length]
        assert {type(token) for token in found} == {int}
        assert FIRST_TOKEN <= min(found) <= max(found) < vocabulary


def test_runs_of_ids_are_their_ids():
    source = TokenSource(3, 1000)
    assert source.hashed([(5, 4)], 16, 60) == source.hashed([(5, 1), (6, 2), (8, 1)], 16, 60)


def test_equal_blocks_are_equal_wherever_they_stand_and_others_differ():
    source = TokenSource(7, 50_000)
    blocks = {block: source.hashed([(block, 1)], 16, 16) for block in [*range(300), *range(2**63 - 300, 2**63)]}
    assert len({tuple(tokens) for tokens in blocks.values()}) == len(blocks)
    assert source.hashed([(9, 1), (250, 1), (9, 1)], 16, 40) == blocks[9] + blocks[250] + blocks[9][:8]
    assert TokenSource(8, 50_000).hashed([(9, 1)], 16, 16) != blocks[9]


@pytest.mark.parametrize("seed", range(3))
def test_prompts_share_the_tokens_of_the_blocks_they_begin_with_and_no_more(seed):
    generator = random.Random(seed)
    source = PromptSource(seed, 100_000, {}, 128)

    def prompt(name, ids, own):
        blocks = HashedBlocks(
            block_ranges=tuple((block, 1) for block in ids),
            block_tokens=64,
            tokens=64 * len(ids) - generator.randrange(9),
        )
        parts = (blocks, Segment(name=name, length=Length(tokens=own)))
        request = WorkloadRequest(id=name, when=Trigger(at_step=0), prompt=parts, output=Length(tokens=1))
        return source.token_ids(request), blocks.tokens + own

    prompts = []
    for number in range(12):
        ids = [generator.randrange(2) for _ in range(generator.randrange(1, 6))]
        tokens, length = prompt(f"r{number}", ids, 40)
        assert len(tokens) == length
        prompts.append((tokens, [(block, place) for block in ids for place in range(64)][: length - 40]))
    for tokens, places in prompts:
        for others, other_places in prompts:
            if tokens is not others:
                shared = next((i for i, (a, b) in enumerate(zip(places, other_places, strict=False)) if a != b), None)
                shared = min(len(places), len(other_places)) if shared is None else shared
                assert tokens[:shared] == others[:shared]
                assert tokens[shared : shared + 8] != others[shared : shared + 8]
