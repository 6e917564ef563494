"""Importers of published request traces into vstate's workload format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from vstate.schemas.workload import WorkloadRequest
from vstate.tracer.workloads.importers import azure, bailian, claude_code, lengths, mooncake, servegen
from vstate.tracer.workloads.importers.rows import ImportOptions, Tally


class Importer(Protocol):
    """A module that reads one format."""

    @property
    def HEADER(self) -> tuple[str, ...]:
        """What a workload made from the format says about itself: what is measured and what is chosen."""

    @property
    def OPTIONS(self) -> frozenset[str]:
        """Names of those `ImportOptions` that go with some formats only, and with this one."""

    def read(self, path: Path, options: ImportOptions, tally: Tally) -> Iterator[WorkloadRequest]:
        """Read the requests of a file in its order; ``tally`` counts what is changed."""


FORMATS: dict[str, Importer] = {
    "azure": azure,
    "bailian": bailian,
    "claude-code": claude_code,
    "lengths": lengths,
    "mooncake": mooncake,
    "servegen": servegen,
}
