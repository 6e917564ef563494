"""How fast the scheduler engine runs a workload with tracing on, and whether its memory stays bounded."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vstate.schemas.errors import VstateError
from vstate.schemas.manifests import PROCESS_FILE, ProcessManifest, RunManifest, read_manifest
from vstate.tracer.engines.job import EngineMessage
from vstate.tracer.engines.launch import run_engine
from vstate.tracer.engines.request import RunRequest

SETTLED = 0.25
"""Share of the requests after which caches are full and memory should grow no more."""


@dataclass(frozen=True)
class SchedulerRow:
    """One measured run; all of it measured but `modelled_seconds`.

    Attributes:
        model: The model.
        workload: The workload.
        requests: Requests that ended.
        steps: Steps of the engine.
        seconds: Wall time from the first request to the last.
        requests_per_second: Requests over that time.
        steps_per_second: Steps over that time.
        modelled_seconds: What the virtual clock showed at the end.
        peak_bytes: Most memory the engine's process had resident at a progress message.
        growth_bytes: Resident memory at the end less that after a quarter of the requests; a model of constant
            memory has none but noise.
        trace_bytes: Size of the trace.
        events: Rows in it.
        lost_rows: Rows that were not written.
    """

    model: str
    workload: str
    requests: int
    steps: int
    seconds: float
    requests_per_second: float
    steps_per_second: float
    modelled_seconds: float
    peak_bytes: int
    growth_bytes: int
    trace_bytes: int
    events: int
    lost_rows: int


class _Watch:
    """Notes when messages came and what they said of memory."""

    def __init__(self, told: Callable[[EngineMessage], None]) -> None:
        self._told = told
        self.started = 0.0
        self.ended = 0.0
        self.points: list[tuple[int, int]] = []
        self.last = EngineMessage(kind="starting")

    def __call__(self, message: EngineMessage) -> None:
        self.last, self.ended = message, time.monotonic()
        if message.kind == "running":
            self.started = self.started or self.ended
            self.points.append((message.ended, message.resident_bytes))
        self._told(message)

    def growth_bytes(self, requests: int) -> int:
        settled = [resident for ended, resident in self.points if ended >= SETTLED * requests]
        return settled[-1] - settled[0] if settled else 0


def measure_scheduler(
    request: RunRequest, told: Callable[[EngineMessage], None], *, keep: bool
) -> tuple[SchedulerRow, RunManifest]:
    """Run a workload through the scheduler engine and measure it.

    Args:
        request: What to run; its folder is made.
        told: Called with each message of the engine.
        keep: Whether the run stays.

    Raises:
        VstateError: The run failed, or another engine is asked for.
    """
    if request.engine != "scheduler":
        raise VstateError("this bench is of the scheduler engine")
    watch = _Watch(told)
    try:
        manifest = run_engine(request, watch)
        row = _row(request, manifest, watch)
    finally:
        if not keep:
            shutil.rmtree(request.out, ignore_errors=True)
    return row, manifest


def in_scratch(request: RunRequest) -> RunRequest:
    """Return the request with a run folder that can be thrown away."""
    return replace(request, out=Path(tempfile.mkdtemp(prefix="vstate-bench-")) / "run")


def _row(request: RunRequest, manifest: RunManifest, watch: _Watch) -> SchedulerRow:
    outcome = manifest.outcome or {}
    requests = outcome.get("finished", 0) + outcome.get("aborts", 0)
    seconds = watch.ended - watch.started
    (process_file,) = request.out.glob(f"events/engine-*/{PROCESS_FILE}")
    closing = read_manifest(process_file, ProcessManifest).closing
    if closing is None:
        raise VstateError(f"{process_file} has no closing counts; see engine.log in the run")
    return SchedulerRow(
        model=request.model,
        workload=Path(request.workload).name,
        requests=requests,
        steps=watch.last.steps,
        seconds=round(seconds, 1),
        requests_per_second=round(requests / seconds, 1),
        steps_per_second=round(watch.last.steps / seconds, 1),
        modelled_seconds=round(watch.last.modelled_seconds or 0.0, 1),
        peak_bytes=max(resident for _, resident in watch.points),
        growth_bytes=watch.growth_bytes(requests),
        trace_bytes=sum(path.stat().st_size for path in request.out.glob("events/*/*.arrows")),
        events=sum(closing.rows.values()),
        lost_rows=closing.lost_rows,
    )
