"""Generators of synthetic workloads: arrivals, lengths and sharing that are stated, not measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from vstate.schemas.workload import WorkloadRequest
from vstate.tracer.workloads.generators import bursts, long_context, media_mix, multi_turn, poisson, shared_prefixes
from vstate.tracer.workloads.generators.draws import GeneratorOptions


class Generator(Protocol):
    """A module that makes one kind of workload."""

    @property
    def HEADER(self) -> tuple[str, ...]:
        """What the workload says about itself."""

    @property
    def OPTIONS(self) -> frozenset[str]:
        """Names of the `GeneratorOptions` that go with some kinds only, and with this one."""

    def make(self, options: GeneratorOptions) -> Iterator[WorkloadRequest]:
        """Make the requests, those that arrive by the clock in order of time."""


GENERATORS: dict[str, Generator] = {
    "bursts": bursts,
    "long-context": long_context,
    "media-mix": media_mix,
    "multi-turn": multi_turn,
    "poisson": poisson,
    "shared-prefixes": shared_prefixes,
}
