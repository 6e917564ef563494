"""Runs what can be run of a model here, and says of the rest why it was not."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vstate.candidate.report import (
    BackendEvidence,
    Benchmark,
    Books,
    Build,
    CorrectnessRun,
    Group,
    Pool,
    Revision,
    Verification,
)
from vstate.candidate.subject import MEMORY_SHARE, Question, Subject, find_subject
from vstate.schemas.errors import VstateError
from vstate.schemas.manifests import PROCESS_FILE, ProcessManifest, RunManifest, read_manifest
from vstate.schemas.summary import Summary
from vstate.schemas.vocabulary import Owner, StateClass
from vstate.tracer.engines.job import EngineMessage
from vstate.tracer.engines.launch import run_engine
from vstate.tracer.engines.request import RunRequest
from vstate.tracer.engines.step_time import DEVICES

Told = Callable[[str, EngineMessage], None]
"""Called with the name of a column and a message of its engine."""


def gpu_here() -> bool:
    """Say whether torch sees a GPU."""
    import torch

    return bool(torch.cuda.is_available())


def reconcile(run: Path) -> Summary:
    """Reconcile a run."""
    from vstate.reconcile.job import reconcile_run

    return reconcile_run(run)


@dataclass(frozen=True)
class Tools:
    """What a verification does to the world; tests put others in their place."""

    run: Callable[[RunRequest, Callable[[EngineMessage], None]], RunManifest] = run_engine
    reconcile: Callable[[Path], Summary] = reconcile
    gpu_here: Callable[[], bool] = gpu_here


def verify(question: Question, out: Path | None, told: Told, tools: Tools | None = None) -> Verification:
    """Find out what is known about a model here.

    Args:
        question: What is asked.
        out: Folder in which the runs are kept; None to keep only those that failed, in a scratch folder.
        told: Told of progress.
        tools: What runs and judges.

    Raises:
        VstateError: There is no such model, workload or device, or ``out`` exists.
    """
    subject = find_subject(question)
    if out is not None and out.exists():
        raise VstateError(f"{out} exists already; give another --out or remove it")
    folder = out or Path(tempfile.mkdtemp(prefix="vstate-candidate-"))
    keep = out is not None
    try:
        found = _Verifier(subject, folder, told, tools or Tools()).verification()
        keep = keep or (not found.clean and any(folder.iterdir()))
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return found if keep else found.without_runs()


class _Verifier:
    """One verification: the subject, where its runs go, and what makes them."""

    def __init__(self, subject: Subject, folder: Path, told: Told, tools: Tools) -> None:
        self._subject = subject
        self._folder = folder
        self._told = told
        self._tools = tools

    def verification(self) -> Verification:
        backend = self._backend()
        why_not = why_no_forward(self._subject, self._tools.gpu_here)
        correctness = CorrectnessRun(status="not run", sentence=why_not) if why_not else self._correctness()
        why_not = why_not or why_no_benchmark(self._subject.revision, correctness)
        benchmark = Benchmark(status="not run", sentence=why_not) if why_not else self._benchmark()
        return Verification(
            model=self._subject.question.model,
            revision=self._subject.revision,
            backend=backend,
            correctness=correctness,
            benchmark=benchmark,
        )

    def _backend(self) -> BackendEvidence:
        request = self._subject.scheduler_request(self._folder / "backend")
        try:
            manifest, books = self._run_and_reconcile("backend", request)
        except VstateError as error:
            hint = ""
            if self._subject.brings_code:
                hint = "; this folder brings code of its own, which runs with --trust-remote-code only"
            return BackendEvidence(status="failed", sentence=f"failed: {error}{hint}", run=kept(request.out))
        sentence = f"ran {books.finished} requests of {self._workload}; no forward"
        return BackendEvidence(
            status="failed" if books.fault else "ok",
            sentence=f"failed: {books.fault}" if books.fault else sentence,
            build=read_build(request.out, manifest, self._subject.settings_of),
            books=books,
            run=str(request.out),
        )

    def _correctness(self) -> CorrectnessRun:
        request = self._subject.full_request(self._folder / "correctness")
        try:
            _, books = self._run_and_reconcile("correctness", request)
        except VstateError as error:
            return CorrectnessRun(status="failed", sentence=f"failed: {error}", run=kept(request.out))
        sentence = f"ran {books.finished} requests of {self._workload} with a real forward; books checked, answers not"
        return CorrectnessRun(
            status="failed" if books.fault else "ok",
            sentence=f"failed: {books.fault}" if books.fault else sentence,
            books=books,
            run=str(request.out),
        )

    def _benchmark(self) -> Benchmark:
        """Time a run with a real forward, tracing on.

        Not shown: no machine with a GPU and a checkpoint's weights has run this.
        """
        request = self._subject.full_request(self._folder / "benchmark")
        moments: list[float] = []

        def told(message: EngineMessage) -> None:
            if message.kind == "running":
                moments.append(time.monotonic())
            self._told("benchmark", message)

        try:
            manifest = self._tools.run(request, told)
        except VstateError as error:
            return Benchmark(status="failed", sentence=f"failed: {error}", run=kept(request.out))
        finished, seconds = (manifest.outcome or {}).get("finished", 0), moments[-1] - moments[0]
        rate = finished / seconds if seconds else 0.0
        return Benchmark(
            status="ok",
            sentence=f"ran {finished} requests of {self._workload} in {seconds:.1f} s, tracing on; one run, no spread",
            requests_per_second=round(rate, 2),
            run=str(request.out),
        )

    def _run_and_reconcile(self, column: str, request: RunRequest) -> tuple[RunManifest, Books]:
        manifest = self._tools.run(request, lambda message: self._told(column, message))
        return manifest, read_books(self._tools.reconcile(request.out))

    @property
    def _workload(self) -> str:
        return Path(self._subject.question.workload).name


def kept(run: Path) -> str:
    """Return a run's folder as text; empty where an engine that never started left none."""
    return str(run) if run.exists() else ""


def why_no_forward(subject: Subject, gpu: Callable[[], bool]) -> str:
    """Say why a real forward cannot be run here, and what it takes; empty where it can."""
    model, revision = subject.question.model, subject.revision
    if revision.kind == "tiny":
        return ""
    if revision.kind == "full":
        return (
            f"not run: {model} is a configuration without weights; it takes the checkpoint's folder, and a GPU that "
            "vLLM supports"
        )
    weights = revision.weights
    if weights is None or not (weights.files or weights.missing):
        return f"not run: no weights in {model}; it takes all of the checkpoint, and a GPU that vLLM supports"
    if weights.missing:
        count, first = len(weights.missing), weights.missing[0]
        rest = f" and {count - 1} more files of weights are" if count > 1 else " is"
        return f"not run: {first}{rest} missing from {model}; it takes all of the checkpoint, and a GPU"
    return "" if gpu() else "not run: no GPU here; it takes the same command on a machine with one that vLLM supports"


def why_no_benchmark(revision: Revision, correctness: CorrectnessRun) -> str:
    """Say why a run that was made once is not timed; empty where it is."""
    if revision.kind == "tiny":
        return "not run: a tiny model's speed says nothing; it takes a checkpoint, and a GPU that vLLM supports"
    if correctness.status == "failed":
        return "not run: the correctness run failed; it takes one that is clean"
    return ""


def read_books(summary: Summary) -> Books:
    """Take from reconcile's summary what a verification judges by."""
    return Books(
        verdict=summary.verdict,
        finished=summary.outcome["finished"],
        undercount_blocks=sum(e.undercount_blocks for e in summary.estimates if e.source == "vstate"),
        findings=tuple(f"{f.rule}: {f.sentence}" for f in summary.findings if f.severity != "info"),
    )


def read_build(run: Path, manifest: RunManifest, settings_of: str) -> Build:
    """Read from a run what vLLM made of the model.

    Raises:
        VstateError: The run is damaged.
    """
    process = read_manifest(next(run.glob(f"events/engine-*/{PROCESS_FILE}")), ProcessManifest)
    device = manifest.modelled.device if manifest.modelled else ""
    pool_bytes = sum(pool.total_bytes for pool in process.pools)
    sized = manifest.settings.get("gpu_memory_utilization") == MEMORY_SHARE and device
    components = [component for group in process.groups for component in group.components]
    return Build(
        vllm=process.vllm_version,
        platform=process.platform,
        architecture=process.settings.architecture,
        device=device,
        tensor_parallel_size=manifest.settings.get("tensor_parallel_size", 1),
        settings_of=settings_of,
        backends=dict(sorted(Counter(process.backends.values()).items())),
        groups=tuple(
            Group(
                state_classes=tuple(
                    sorted({str(c.state_class) for c in group.components if c.state_class != StateClass.PADDING})
                ),
                spec_kind=group.spec_kind,
                layers=len(group.layers),
                block_tokens=group.block_tokens,
                draft=group.draft,
            )
            for group in process.groups
        ),
        draft_layers=len({layer for c in components if c.owner == Owner.DRAFT for layer in c.layers}),
        pools=tuple(
            Pool(blocks=pool.num_blocks, block_bytes=pool.block_bytes, total_bytes=pool.total_bytes)
            for pool in process.pools
        ),
        weight_bytes=int(DEVICES[device].memory_bytes * MEMORY_SHARE) - pool_bytes if sized else None,
        parameters=manifest.origin.published_parameters if manifest.origin else None,
    )
