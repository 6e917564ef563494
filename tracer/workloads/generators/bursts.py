"""Requests that come in bursts with silence between them."""

from __future__ import annotations

from collections.abc import Iterator

from vstate.schemas.workload import Trigger, WorkloadRequest
from vstate.tracer.workloads.generators.draws import Draws, GeneratorOptions, arrival

HEADER = (
    "synthetic: arrivals are an interrupted Poisson process: bursts of --burst-factor times --rate, silence between",
    "  them, both of exponential length, so that --rate is the mean; lengths are exponential with the means given;",
    "  prompts share nothing",
)
OPTIONS = frozenset({"burst_factor", "burst_length_s"})


def make(options: GeneratorOptions) -> Iterator[WorkloadRequest]:
    """Make the requests."""
    draws = Draws(options)
    for number, when in zip(range(options.requests), _arrivals(options, draws), strict=False):
        yield draws.request(number, when)


def _arrivals(options: GeneratorOptions, draws: Draws) -> Iterator[Trigger]:
    silence_s = options.burst_length_s * (options.burst_factor - 1)
    gap_s = 1 / (options.rate * options.burst_factor)
    at_s = 0.0
    while True:
        at_s += draws.exponential(silence_s)
        end_s = at_s + draws.exponential(options.burst_length_s)
        while (at_s := at_s + draws.exponential(gap_s)) < end_s:
            yield arrival(at_s)
        at_s = end_s
