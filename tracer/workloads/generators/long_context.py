"""A few requests over long documents among many short ones."""

from __future__ import annotations

from collections.abc import Iterator

from vstate.schemas.workload import Length, Segment, WorkloadRequest
from vstate.tracer.workloads.generators.draws import POISSON, Draws, GeneratorOptions

HEADER = (
    f"{POISSON}; a share of --long-share",
    "  has a document of its own in front, of half to all of --long-tokens, each length as likely as the other;",
    "  prompts share nothing",
)
OPTIONS = frozenset({"long_share", "long_tokens"})


def make(options: GeneratorOptions) -> Iterator[WorkloadRequest]:
    """Make the requests."""
    draws = Draws(options)
    least = (options.long_tokens + 1) // 2
    for number, when in draws.numbered_arrivals():
        if draws.uniform() < options.long_share:
            length = Length(tokens=least + draws.below(options.long_tokens - least + 1))
            yield draws.request(number, when, Segment(name=f"document-{number}", length=length))
        else:
            yield draws.request(number, when)
