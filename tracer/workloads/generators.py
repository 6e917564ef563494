"""Synthetic workloads: arrivals, lengths and sharing that are stated, not measured."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vstate.schemas.workload import (
    Length,
    MediaItem,
    MediaKind,
    MediaSegment,
    PromptSegment,
    Segment,
    Trigger,
    WorkloadRequest,
)


@dataclass(frozen=True)
class GeneratorOptions:
    """What a synthetic workload is like.

    Attributes:
        requests: Requests in all.
        seed: What all draws follow from.
        rate: Requests that arrive per second; conversations, where there are some.
        input_tokens: Mean tokens of a request's own text.
        output_tokens: Mean tokens of an answer.
        prefixes: Different texts that prompts begin with.
        prefix_tokens: Tokens of each of these.
        turns: Requests of a conversation.
        think_s: Mean seconds from an answer to the next request of a conversation.
        kinds: Kinds of media.
        items: Different items of each kind.
    """

    requests: int = 1000
    seed: int = 0
    rate: float = 1.0
    input_tokens: int = 512
    output_tokens: int = 128
    prefixes: int = 10
    prefix_tokens: int = 1024
    turns: int = 5
    think_s: float = 10.0
    kinds: tuple[MediaKind, ...] = ("image", "audio", "video")
    items: int = 20


@dataclass(frozen=True)
class Generator:
    """One kind of synthetic workload.

    Attributes:
        header: What the workload says about itself.
        options: Names of the `GeneratorOptions` that only some kinds have and this one has.
        make: Makes the requests.
    """

    header: tuple[str, ...]
    options: frozenset[str]
    make: Callable[[GeneratorOptions], Iterator[WorkloadRequest]]


class _Draws:
    """Random numbers of one workload, each made of one uniform draw."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def exponential(self, mean: float) -> float:
        return -math.log(1.0 - self._random.random()) * mean

    def tokens(self, mean: int) -> Length:
        """Return an exponential number of tokens, rounded up, of about that mean."""
        return Length(tokens=max(1, math.ceil(self.exponential(mean - 0.5))))

    def below(self, count: int) -> int:
        return int(self._random.random() * count)

    def moments(self, rate: float) -> Iterator[Trigger]:
        """Return the arrivals of a Poisson process."""
        at_s = 0.0
        while True:
            at_s += self.exponential(1 / rate)
            yield Trigger(at_s=round(at_s, 6))


def _poisson(options: GeneratorOptions) -> Iterator[WorkloadRequest]:
    draws = _Draws(options.seed)
    for number, when in zip(range(options.requests), draws.moments(options.rate), strict=False):
        own = Segment(name=f"own-{number}", length=draws.tokens(options.input_tokens))
        yield _request(f"request-{number}", when, (own,), draws.tokens(options.output_tokens))


def _shared_prefixes(options: GeneratorOptions) -> Iterator[WorkloadRequest]:
    draws = _Draws(options.seed)
    length = Length(tokens=options.prefix_tokens)
    for number, when in zip(range(options.requests), draws.moments(options.rate), strict=False):
        prefix = Segment(name=f"prefix-{draws.below(options.prefixes)}", length=length)
        own = Segment(name=f"own-{number}", length=draws.tokens(options.input_tokens))
        yield _request(f"request-{number}", when, (prefix, own), draws.tokens(options.output_tokens))


def _multi_turn(options: GeneratorOptions) -> Iterator[WorkloadRequest]:
    draws = _Draws(options.seed)
    starts = draws.moments(options.rate)
    prompt: tuple[PromptSegment, ...] = ()
    for number in range(options.requests):
        conversation, turn = divmod(number, options.turns)
        name = f"chat-{conversation}/{turn}"
        if turn:
            think_s = round(draws.exponential(options.think_s), 6)
            when = Trigger(after=f"chat-{conversation}/{turn - 1}", delay_s=think_s)
        else:
            when, prompt = next(starts), ()
        prompt += (Segment(name=f"question-{name}", length=draws.tokens(options.input_tokens)),)
        output = draws.tokens(options.output_tokens)
        yield _request(name, when, prompt, output)
        prompt += (Segment(name=f"answer-{name}", length=output),)


def _media_mix(options: GeneratorOptions) -> Iterator[WorkloadRequest]:
    draws = _Draws(options.seed)
    for number, when in zip(range(options.requests), draws.moments(options.rate), strict=False):
        item = MediaSegment(media=_item(options.kinds[draws.below(len(options.kinds))], draws.below(options.items)))
        own = Segment(name=f"own-{number}", length=draws.tokens(options.input_tokens))
        yield _request(f"request-{number}", when, (item, own), draws.tokens(options.output_tokens))


def _item(kind: MediaKind, number: int) -> MediaItem:
    """Return one item of the pool; its size follows from its number."""
    name = f"{kind}-{number}"
    if kind == "audio":
        return MediaItem(kind=kind, name=name, seconds=2.0 + number % 14)
    width, height = 224 + 112 * (number % 5), 224 + 112 * (number % 3)
    if kind == "image":
        return MediaItem(kind=kind, name=name, width=width, height=height)
    return MediaItem(kind=kind, name=name, width=width, height=height, frames=4 + 2 * (number % 7))


def _request(name: str, when: Trigger, prompt: tuple[PromptSegment, ...], output: Length) -> WorkloadRequest:
    return WorkloadRequest(id=name, when=when, prompt=prompt, output=output)


_ARRIVALS = "synthetic: arrivals are a Poisson process, lengths are exponential with the means given"
GENERATORS = {
    "poisson": Generator((f"{_ARRIVALS}; prompts share nothing",), frozenset(), _poisson),
    "shared-prefixes": Generator(
        (f"{_ARRIVALS}; a prompt begins", "  with one of --prefixes texts, each as likely as the other"),
        frozenset({"prefixes", "prefix_tokens"}),
        _shared_prefixes,
    ),
    "multi-turn": Generator(
        (
            f"{_ARRIVALS}; conversations arrive,",
            "  a turn waits for the answer before it and an exponential think time; its prompt repeats what was said,",
            "  with tokens of the workload's own in the place of each answer, so that an answer itself is not reused",
        ),
        frozenset({"turns", "think_s"}),
        _multi_turn,
    ),
    "media-mix": Generator(
        (f"{_ARRIVALS}; a prompt is one item", "  of one of --kinds, each as likely as the other, and text behind it"),
        frozenset({"kinds", "items"}),
        _media_mix,
    ),
}
