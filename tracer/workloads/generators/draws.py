"""What a synthetic workload is like, and the random numbers it is made of."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from vstate.schemas.workload import Length, MediaKind, PromptSegment, Segment, Trigger, WorkloadRequest

POISSON = "synthetic: arrivals are a Poisson process, lengths are exponential with the means given"


@dataclass(frozen=True)
class GeneratorOptions:
    """What a person chooses when a workload is made.

    Attributes:
        requests: Requests in all.
        seed: What all draws follow from.
        rate: Requests that arrive per second in the mean; conversations, where there are some.
        input_tokens: Mean tokens of a request's own text.
        output_tokens: Mean tokens of an answer.
        burst_factor: How many times the mean rate a burst has; above 1.
        burst_length_s: Mean seconds of a burst.
        long_share: Share of the requests that have a long document.
        long_tokens: Tokens of the longest document.
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
    burst_factor: float = 10.0
    burst_length_s: float = 1.0
    long_share: float = 0.1
    long_tokens: int = 65536
    prefixes: int = 10
    prefix_tokens: int = 1024
    turns: int = 5
    think_s: float = 10.0
    kinds: tuple[MediaKind, ...] = ("image", "audio", "video")
    items: int = 20


class Draws:
    """Random numbers of one workload, each made of one uniform draw, so that no version of a library changes them."""

    def __init__(self, options: GeneratorOptions) -> None:
        """Draw from the seed of ``options``."""
        self._options = options
        self._random = random.Random(options.seed)

    def uniform(self) -> float:
        """Return a number from 0 up to but not 1."""
        return self._random.random()

    def below(self, count: int) -> int:
        """Return a whole number from 0 up to but not ``count``."""
        return int(self.uniform() * count)

    def between(self, low: int, high: int) -> int:
        """Return a whole number from ``low`` to ``high``, even in its logarithm."""
        return min(high, int(low * ((high + 1) / low) ** self.uniform()))

    def exponential(self, mean: float) -> float:
        """Return an exponential number."""
        return -math.log(1.0 - self.uniform()) * mean

    def tokens(self, mean: int) -> Length:
        """Return an exponential number of tokens, rounded up, of about that mean."""
        return Length(tokens=max(1, math.ceil(self.exponential(mean - 0.5))))

    def arrivals(self) -> Iterator[Trigger]:
        """Return the arrivals of a Poisson process."""
        at_s = 0.0
        while True:
            at_s += self.exponential(1 / self._options.rate)
            yield arrival(at_s)

    def numbered_arrivals(self) -> Iterator[tuple[int, Trigger]]:
        """Return the arrivals of all requests, numbered."""
        return zip(range(self._options.requests), self.arrivals(), strict=False)

    def request(self, number: int, when: Trigger, *leading: PromptSegment) -> WorkloadRequest:
        """Return a request with a text of its own behind the ``leading`` parts of its prompt."""
        own = Segment(name=f"own-{number}", length=self.tokens(self._options.input_tokens))
        output = self.tokens(self._options.output_tokens)
        return WorkloadRequest(id=f"request-{number}", when=when, prompt=(*leading, own), output=output)


def arrival(at_s: float) -> Trigger:
    """Return an arrival, on a microsecond."""
    return Trigger(at_s=round(at_s, 6))
