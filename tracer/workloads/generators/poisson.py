"""Requests that share nothing and arrive as a Poisson process."""

from __future__ import annotations

from collections.abc import Iterator

from vstate.schemas.workload import WorkloadRequest
from vstate.tracer.workloads.generators.draws import POISSON, Draws, GeneratorOptions

HEADER = (f"{POISSON}; prompts share nothing",)
OPTIONS: frozenset[str] = frozenset()


def make(options: GeneratorOptions) -> Iterator[WorkloadRequest]:
    """Make the requests."""
    draws = Draws(options)
    for number, when in draws.numbered_arrivals():
        yield draws.request(number, when)
