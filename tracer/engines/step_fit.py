"""Fits the step-time model to runs with a real forward.

What each step computed is put together from the trace: prompt chunks stand in it one by one; between the end of its
prompt and its own end a request is taken to gain tokens evenly over the steps, which is exact without drafts. Steps in
which media were encoded are left out.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vstate.schemas.errors import VstateError
from vstate.schemas.manifests import RUN_FILE, RunManifest, read_manifest
from vstate.schemas.tables.encoder import EncoderKind
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.tables.step import StepKind
from vstate.tracer.engines.launch import run_engine
from vstate.tracer.engines.request import RunRequest, SchedulerOptions
from vstate.tracer.engines.step_costs import StepCosts
from vstate.tracer.engines.step_time import StepTime, fit
from vstate.tracer.outcome import stream_rows

ONE_REQUEST = '{"id":"one","when":{"at_step":0},"prompt":[{"name":"one","length":{"tokens":9}}],"output":{"tokens":1}}'
ENDS = (RequestKind.FINISH, RequestKind.ABORT, RequestKind.PREEMPT)
NS_PER_SECOND = 1e9


class MeasuredStep(NamedTuple):
    """A step of a real engine: its duration, and what each scheduled request had and computed, in tokens."""

    seconds: float
    computed: list[float]
    scheduled: list[float]


class FittedTime(NamedTuple):
    """The model, the steps it was fitted to, and by what share of a step's time it errs, at the median of the steps."""

    model: StepTime
    steps: int
    median_error: float


def fit_runs(runs: list[Path]) -> FittedTime:
    """Fit the model to all steps of runs.

    Raises:
        VstateError: A run has no real forward, or there are too few steps.
    """
    flops: list[float] = []
    read: list[float] = []
    seconds: list[float] = []
    for run in runs:
        costs = costs_of(run)
        for step in measured_steps(run):
            did, moved = costs.of_step(np.array(step.computed), np.array(step.scheduled), 0)
            flops.append(did)
            read.append(moved)
            seconds.append(step.seconds)
    names = ", ".join(run.name for run in runs)
    model = fit(flops, read, seconds, f"{len(seconds)} steps of {names}")
    modelled = np.array([model.seconds(did, moved) for did, moved in zip(flops, read, strict=True)])
    errors = np.abs(modelled / np.array(seconds) - 1)
    return FittedTime(model, len(seconds), float(np.median(errors)))


def costs_of(run: Path) -> StepCosts:
    """Return what a step of a run's model costs, by building the model for its shapes.

    Raises:
        VstateError: The run has no real forward, or its model cannot be found any more.
    """
    manifest = read_manifest(run / RUN_FILE, RunManifest)
    if manifest.engine != "full":
        raise VstateError(f"{run} is a run of engine {manifest.engine}: only a real forward has times to fit to")
    with tempfile.TemporaryDirectory(prefix="vstate-fit-") as scratch:
        workload = Path(scratch) / "one.jsonl"
        workload.write_text(ONE_REQUEST + "\n", encoding="utf-8")
        request = RunRequest(
            model=manifest.model,
            workload=str(workload),
            out=Path(scratch) / "run",
            seed=0,
            settings={},
            own_process=False,
            engine="scheduler",
            scheduler=SchedulerOptions(
                device="h100", tensor_parallel_size=int(manifest.settings.get("tensor_parallel_size", 0))
            ),
        )
        made = run_engine(request, lambda _: None)
    assert made.modelled is not None
    return StepCosts.model_validate(made.modelled.costs)


def measured_steps(run: Path) -> Iterator[MeasuredStep]:
    """Yield the steps of a run's engines whose work is known."""
    for folder in sorted((run / "events").glob("engine-*")):
        yield from _steps_of(folder)


def _steps_of(folder: Path) -> Iterator[MeasuredStep]:
    durations, tokens = _durations(stream_rows(folder, "step"))
    chunks, decodes = _work(stream_rows(folder, "request"))
    encoding = {row["step"] for row in stream_rows(folder, "encoder") if row["kind"] == EncoderKind.ALLOCATE}
    for step, seconds in durations.items():
        computed = [float(done) for done, _ in chunks[step]]
        scheduled = [float(count) for _, count in chunks[step]]
        left = tokens[step] - sum(scheduled)
        if step in encoding or not (computed or decodes[step]) or left < len(decodes[step]):
            continue
        # Drafts are scheduled with the token they follow; all that decode are taken to have as many.
        share = left / len(decodes[step]) if decodes[step] else 0.0
        yield MeasuredStep(seconds, computed + decodes[step], scheduled + [share] * len(decodes[step]))


def _durations(rows: Iterable[dict[str, Any]]) -> tuple[dict[int, float], dict[int, int]]:
    """Return the seconds from a step's scheduling, or the end of the one before, to its own end, and its tokens."""
    begun: dict[int, int] = {}
    tokens: dict[int, int] = {}
    durations: dict[int, float] = {}
    last = 0
    for row in sorted(rows, key=lambda row: row["seq"]):
        step = row["step"]
        if row["kind"] == StepKind.SCHEDULED:
            begun[step], tokens[step] = row["time_ns"], row["scheduled_tokens"]
        elif step in begun:
            durations[step] = (row["time_ns"] - max(begun.pop(step), last)) / NS_PER_SECOND
            last = row["time_ns"]
    return durations, tokens


def _work(rows: Iterable[dict[str, Any]]) -> tuple[dict[int, list[tuple[int, int]]], dict[int, list[float]]]:
    """Return per step its prompt chunks as (computed, scheduled), and what decoding requests had computed."""
    chunks: dict[int, list[tuple[int, int]]] = defaultdict(list)
    decodes: dict[int, list[float]] = defaultdict(list)
    begun: dict[int, tuple[int, int]] = {}
    for row in sorted(rows, key=lambda row: row["seq"]):
        key, step = row["request_key"], row["step"]
        if row["kind"] == RequestKind.PREFILL_CHUNK:
            chunks[step].append((row["computed_tokens"], row["scheduled_tokens"]))
            if row["computed_tokens"] + row["scheduled_tokens"] >= row["total_tokens"]:
                begun[key] = (step, row["total_tokens"])
        elif row["kind"] in ENDS and key in begun:
            first, total = begun.pop(key)
            steps = range(first + 1, step + 1)
            for place, own in enumerate(steps):
                decodes[own].append(total + place * (row["total_tokens"] - total) / len(steps))
    return chunks, decodes
