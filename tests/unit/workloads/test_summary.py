"""Figures of a workload against a second way to count them."""

import random

import pytest

from vstate.schemas.workload import HashedBlocks, Length, MediaItem, MediaSegment, Segment, Trigger, WorkloadRequest
from vstate.tracer.workloads.summary import EndlessCache, summarize
from vstate.tracer.workloads.writing import write_workload


def request(name, prompt, when=None, output=1):
    when = when or Trigger(at_step=0)
    return WorkloadRequest(id=name, when=when, prompt=tuple(prompt), output=Length(tokens=output))


def blocks(ids, tokens, block_tokens=4):
    ranges = tuple((block, 1) for block in ids)
    return HashedBlocks(block_ranges=ranges, block_tokens=block_tokens, tokens=tokens)


def text(name, tokens):
    return Segment(name=name, length=Length(tokens=tokens))


def summary(tmp_path, *lines, block_tokens=128):
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
    write_workload(path, [], lines)
    return summarize(path, block_tokens)


def spelled_out(prompt):
    """The prompt as a list of what each token is; equal tokens are equal entries."""
    tokens = []
    for part in prompt:
        if isinstance(part, HashedBlocks):
            ids = [first + i for first, count in part.block_ranges for i in range(count)]
            places = [(block, place) for block in ids for place in range(part.block_tokens)]
            tokens += places[: part.tokens]
        else:
            tokens += [(part.name, place) for place in range(part.length.tokens)]
    return tokens


def common(one, other):
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@pytest.mark.parametrize("seed", range(5))
def test_reuse_is_the_longest_prefix_that_an_earlier_prompt_began_with(seed):
    """Brute force over every pair; a name has one length here, so that parts are equal as a whole or not at all."""
    generator = random.Random(seed)
    cache, earlier, reused_before = EndlessCache(128), [], 0
    for number in range(60):
        ids = [generator.randrange(3) for _ in range(generator.randrange(1, 6))]
        prompt = [blocks(ids, 4 * len(ids))]
        if generator.random() < 0.5:
            prompt.insert(generator.randrange(2), text("ab"[generator.randrange(2)], 7))
        tokens = spelled_out(prompt)
        expected = max((common(tokens, other) for other in earlier), default=0)
        assert cache.add(request(str(number), prompt)) == expected
        earlier.append(tokens)
        reused_before += expected
    assert reused_before, "the prompts must share something"


def test_a_block_is_reused_only_behind_the_same_blocks():
    cache = EndlessCache(128)
    assert cache.add(request("a", [blocks([1, 2, 3], 12)])) == 0
    assert cache.add(request("b", [blocks([9, 2, 3], 12)])) == 0
    assert cache.add(request("c", [blocks([1, 2, 5], 9)])) == 8
    assert cache.add(request("d", [blocks([1, 2, 5], 9)])) == 9, "the block that is cut short too"


def test_media_stand_in_the_prefix_but_their_tokens_are_not_known(tmp_path):
    cat = MediaSegment(media=MediaItem(kind="image", name="cat", width=8, height=8))
    dog = MediaSegment(media=MediaItem(kind="image", name="dog", width=8, height=8))
    prompts = [[text("s", 10), item, text("t", 5)] for item in (cat, dog, cat)]
    found = summary(tmp_path, *(request(str(i), prompt) for i, prompt in enumerate(prompts)))
    assert found.media_items == {"image": 3}
    assert found.input_tokens.total == 45
    assert found.reusable_share == (10 + 15) / 45


def test_lengths_in_blocks_follow_the_option(tmp_path):
    line = WorkloadRequest(
        id="a",
        when=Trigger(at_step=3),
        prompt=(Segment(name="s", length=Length(blocks=2, tokens=1)),),
        output=Length(blocks=0.5),
    )
    found = summary(tmp_path, line, block_tokens=100)
    assert (found.input_tokens.max, found.output_tokens.max) == (201, 50)
    assert (found.span_s, found.mean_rate, found.dispersion) == (None, None, None)


def test_percentiles_are_values_that_occur(tmp_path):
    lines = [request(str(i), [text(str(i), i)], output=1000 - i) for i in range(1, 201)]
    found = summary(tmp_path, *random.Random(0).sample(lines, len(lines)))
    tokens = found.input_tokens
    assert (tokens.p50, tokens.p95, tokens.p99, tokens.max, tokens.mean) == (100, 190, 198, 200, 100.5)
    assert found.output_tokens.max == 999


def test_arrivals(tmp_path):
    """Ten whole windows of 10 s and a cut one behind them, which is not counted."""
    counts = [1, 4, 0, 2, 7, 0, 0, 3, 1, 2]
    moments = [10.0 * window + 5 + i / 100 for window, count in enumerate(counts) for i in range(count)]
    moments = [5.0, *moments[1:], 104.9, 105.0, 107.0]
    counts[9] += 1
    lines = [request(str(i), [text(str(i), 3)], Trigger(at_s=moment)) for i, moment in enumerate(moments)]
    lines += [request("next", [text("next", 3)], Trigger(after="0", delay_s=1.0))]
    found = summary(tmp_path, *lines)
    mean = sum(counts) / 10
    squares = sum(count * count for count in counts) / 10
    assert found.span_s == 102.0
    assert found.mean_rate == pytest.approx(len(moments) / 102.0)
    assert found.dispersion == pytest.approx((squares - mean**2) / mean)
    assert found.closed_loop_share == 1 / len(lines)
