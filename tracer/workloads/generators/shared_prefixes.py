"""Requests that begin with one of a few texts."""

from __future__ import annotations

from collections.abc import Iterator

from vstate.schemas.workload import Length, Segment, WorkloadRequest
from vstate.tracer.workloads.generators.draws import POISSON, Draws, GeneratorOptions

HEADER = (f"{POISSON}; a prompt begins", "  with one of --prefixes texts, each as likely as the other")
OPTIONS = frozenset({"prefixes", "prefix_tokens"})


def make(options: GeneratorOptions) -> Iterator[WorkloadRequest]:
    """Make the requests."""
    draws = Draws(options)
    length = Length(tokens=options.prefix_tokens)
    for number, when in draws.numbered_arrivals():
        yield draws.request(number, when, Segment(name=f"prefix-{draws.below(options.prefixes)}", length=length))
