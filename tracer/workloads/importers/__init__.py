"""Importers of published request traces into vstate's workload format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from vstate.schemas.workload import WorkloadRequest
from vstate.tracer.workloads.importers import azure, bailian, claude_code, lengths, mooncake, servegen
from vstate.tracer.workloads.importers.rows import ImportOptions, Tally


class Importer(Protocol):
    """A module that reads one format.

    Attributes:
        HEADER: What a workload made from the format says about itself: what is measured and what is chosen.
        OPTIONS: Names of the `ImportOptions` that only some formats have and this one has.
    """

    HEADER: tuple[str, ...]
    OPTIONS: frozenset[str]

    def read(self, path: Path, options: ImportOptions, tally: Tally) -> Iterator[WorkloadRequest]:
        """Read the requests of a file in its order; `tally` counts what is changed."""


FORMATS: dict[str, Importer] = {
    "azure": azure,
    "bailian": bailian,
    "claude-code": claude_code,
    "lengths": lengths,
    "mooncake": mooncake,
    "servegen": servegen,
}
