"""What the tests of `vstate.reconcile` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from support.traces import Row, write_run
from vstate.reconcile.job import reconcile_run
from vstate.schemas.manifests import GroupManifest, ProcessManifest
from vstate.schemas.summary import Summary

AMPLE_BLOCKS = 1000
"""A bound that no synthetic request exceeds: these tests are about replay, not about the bound."""


@pytest.fixture(autouse=True)
def ample_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def tokens(group: GroupManifest, settings: object, prompt: int, output: int) -> int:
        return -(-(prompt + output) // group.block_tokens)

    formulas = {"naive": tokens, "vstate": lambda *_: AMPLE_BLOCKS}
    monkeypatch.setattr("vstate.reconcile.estimates.formulas", lambda: formulas)


@pytest.fixture
def summarise(tmp_path: Path) -> Callable[..., Summary]:
    """Write rows as a run and reconcile it."""
    written = 0

    def summarised(rows: Sequence[Row], manifest: ProcessManifest, **options: object) -> Summary:
        nonlocal written
        written += 1
        return reconcile_run(write_run(tmp_path / f"run-{written}", rows, manifest, **options))

    return summarised
