"""Synthetic workloads: what they promise, counted again from the lines."""

import json
import math
import sys
from collections import Counter

import pytest

from vstate.cli.main import main
from vstate.schemas.workload import MediaSegment, check_workload, read_workload
from vstate.tracer.workloads.generators import GENERATORS, GeneratorOptions
from vstate.tracer.workloads.summary import EndlessCache


def made(name, **options):
    requests = list(GENERATORS[name].make(GeneratorOptions(**options)))
    return check_workload(requests, name)


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def text_tokens(request):
    return sum(part.length.tokens for part in request.prompt if not isinstance(part, MediaSegment))


@pytest.mark.parametrize("name", GENERATORS)
def test_a_seed_makes_one_workload(name):
    assert made(name, requests=40, seed=1) == made(name, requests=40, seed=1)
    assert made(name, requests=40, seed=1) != made(name, requests=40, seed=2)
    assert len(made(name, requests=41)) == 41


def test_poisson_arrivals_and_lengths_have_the_means_asked_for():
    requests = made("poisson", requests=5000, rate=4.0, input_tokens=300, output_tokens=50)
    moments = [request.when.at_s for request in requests]
    gaps = [later - earlier for earlier, later in zip(moments, moments[1:], strict=False)]
    average = mean(gaps)
    assert average == pytest.approx(0.25, rel=0.06)
    assert mean((gap - average) ** 2 for gap in gaps) ** 0.5 == pytest.approx(average, rel=0.08)
    assert mean(map(text_tokens, requests)) == pytest.approx(300, rel=0.06)
    assert mean(request.output.tokens for request in requests) == pytest.approx(50, rel=0.06)
    cache = EndlessCache(128)
    assert sum(cache.add(request) for request in requests) == 0


def test_each_shared_prefix_is_read_once():
    requests = made("shared-prefixes", requests=300, prefixes=7, prefix_tokens=100, input_tokens=20)
    cache = EndlessCache(128)
    reused = sum(cache.add(request) for request in requests)
    assert len({request.prompt[0] for request in requests}) == 7
    assert reused == (300 - 7) * 100


def test_a_turn_begins_with_the_turns_before_it_and_waits_for_their_answer():
    requests = made("multi-turn", requests=100, turns=4, think_s=2.0, input_tokens=30, output_tokens=9)
    conversations = [requests[i : i + 4] for i in range(0, 100, 4)]
    starts = [conversation[0].when.at_s for conversation in conversations]
    assert starts == sorted(starts)
    for conversation in conversations:
        for before, turn in zip(conversation, conversation[1:], strict=False):
            assert turn.when.after == before.id
            assert turn.prompt[: len(before.prompt)] == before.prompt
            answer, question = turn.prompt[len(before.prompt) :]
            assert answer.length == before.output
            assert question not in before.prompt
    assert len({conversation[0].prompt for conversation in conversations}) == 25
    thinks = [turn.when.delay_s for conversation in conversations for turn in conversation[1:]]
    assert mean(thinks) == pytest.approx(2.0, rel=0.4)


@pytest.mark.long
@pytest.mark.parametrize("factor", [4.0, 20.0])
def test_bursts_keep_the_mean_rate_and_gather_as_an_interrupted_poisson_process_does(factor):
    """Variance over mean of counts in windows, against its formula (Fischer, Meier-Hellstern 1993, section 4)."""
    rate, length_s, window_s = 20.0, 0.5, 2.0
    requests = made("bursts", requests=60_000, rate=rate, burst_factor=factor, burst_length_s=length_s)
    moments = [request.when.at_s for request in requests]
    assert moments == sorted(moments)
    assert len(moments) / moments[-1] == pytest.approx(rate, rel=0.1)
    windows = int(moments[-1] // window_s)
    counts = Counter(int(moment // window_s) for moment in moments)
    average = mean(counts[window] for window in range(windows))
    found = mean((counts[window] - average) ** 2 for window in range(windows)) / average
    ends, begins = 1 / length_s, 1 / (length_s * (factor - 1))
    decay = (ends + begins) * window_s
    settled = 2 * rate * factor * ends / (ends + begins) ** 2
    assert found == pytest.approx(1 + settled * (1 - (1 - math.exp(-decay)) / decay), rel=0.15)


def test_a_share_of_the_prompts_is_long():
    requests = made("long-context", requests=4000, long_share=0.2, long_tokens=10_000, input_tokens=50)
    long = [request.prompt[0].length.tokens for request in requests if len(request.prompt) == 2]
    assert len(long) / 4000 == pytest.approx(0.2, abs=0.02)
    assert min(long) in range(5000, 5100)
    assert max(long) in range(9900, 10_001)
    assert mean(long) == pytest.approx(7500, rel=0.03)
    assert mean(request.prompt[-1].length.tokens for request in requests) == pytest.approx(50, rel=0.06)
    assert len({part.name for request in requests for part in request.prompt}) == 4000 + len(long)


def test_sizes_of_media_spread_and_stay_within_what_is_stated():
    requests = made("media-mix", requests=4000, items=300)
    items = {part.media for request in requests for part in request.prompt if isinstance(part, MediaSegment)}
    sides = sorted(side for item in items for side in (item.width, item.height) if item.kind == "image")
    assert (sides[0] in range(128, 140), sides[-1] in range(960, 1025)) == (True, True)
    assert sides[len(sides) // 2] == pytest.approx(math.sqrt(128 * 1024), rel=0.15), "even in the logarithm"
    assert {item.frames for item in items if item.kind == "video"} <= set(range(2, 33))
    assert all(1 <= item.seconds <= 30 for item in items if item.kind == "audio")
    assert len({item.seconds for item in items if item.kind == "audio"}) > 100


def test_media_come_in_the_kinds_asked_for_and_from_a_pool():
    requests = made("media-mix", requests=400, kinds=("image", "audio"), items=5)
    items = [part.media for request in requests for part in request.prompt if isinstance(part, MediaSegment)]
    assert len(items) == 400
    assert {item.kind for item in items} == {"image", "audio"}
    assert len(set(items)) == 10
    assert items.count(items[0]) > 1


@pytest.fixture
def command_line(capfd, monkeypatch):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["vstate", "workload", "generate", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, capfd.readouterr().err

    return call


@pytest.mark.parametrize("name", GENERATORS)
def test_the_command_writes_what_the_generator_makes(command_line, tmp_path, name):
    output = tmp_path / "out.jsonl"
    code, _ = command_line(name, "-o", output, "--requests", 12, "--seed", 5)
    assert code == 0
    assert read_workload(output) == made(name, requests=12, seed=5)
    first, second = output.read_text().splitlines()[:2]
    assert first.startswith(f"# made by: vstate workload generate {name} --requests 12 --seed 5")
    assert second.startswith("# synthetic: ")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("poison",), "poisson"),
        (("poisson", "--turns", 3), "--turns"),
        (("multi-turn", "--prefixes", 3), "--prefixes"),
        (("poisson", "--rate", 0), "--rate"),
        (("media-mix", "--kinds", "image,smell"), "smell"),
        (("poisson", "--burst-factor", 3), "--burst-factor"),
        (("bursts", "--burst-factor", 1), "--burst-factor"),
        (("bursts", "--burst-length", 0), "--burst-length"),
        (("long-context", "--long-share", "nan"), "--long-share"),
        (("multi-turn", "--think", "inf"), "--think"),
    ],
)
def test_wrong_calls_write_nothing(command_line, tmp_path, arguments, what):
    code, errors = command_line(*arguments, "-o", tmp_path / "out.jsonl")
    assert code == 2
    assert what in errors
    assert not list(tmp_path.iterdir())


def test_kinds_are_named_in_the_file(command_line, tmp_path):
    output = tmp_path / "out.jsonl"
    assert command_line("media-mix", "-o", output, "--kinds", "video", "--requests", 3)[0] == 0
    lines = [json.loads(line) for line in output.read_text().splitlines() if not line.startswith("#")]
    assert {part["media"]["kind"] for line in lines for part in line["prompt"] if "media" in part} == {"video"}
    assert "--kinds video" in output.read_text()
