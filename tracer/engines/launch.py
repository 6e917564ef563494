"""Starts an engine process for a run, follows it, and completes the run's manifest."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from vstate import __version__
from vstate.schemas.errors import VstateError, require_vllm
from vstate.schemas.manifests import (
    EVENTS_FOLDER,
    PRIVATE_FILE_MODE,
    RUN_FILE,
    Machine,
    Modelled,
    RunManifest,
    write_manifest,
)
from vstate.schemas.workload import MediaKind, scan_workload
from vstate.tracer.engines.folder import make_run_folder, remove_if_no_request
from vstate.tracer.engines.job import EngineJob, EngineMessage
from vstate.tracer.engines.request import RunRequest
from vstate.tracer.engines.resolve import ResolvedModel, resolve_model
from vstate.tracer.engines.step_time import StepTime
from vstate.tracer.outcome import count_outcome
from vstate.tracer.settings import child_environment
from vstate.tracer.workloads.smoke import smoke

ENGINE_LOG = "engine.log"
GRACE_SECONDS = 10.0
"""Time an engine has to end in order before it is killed."""
CACHE_SPACE_GIB = "1"
"""Host memory of the KV cache on a CPU; a tiny model's pool is smaller than that."""


def workload_file(request: RunRequest, media: Sequence[MediaKind], scratch: Path) -> Path:
    """Return the file of the workload; ``smoke`` has media of these kinds and is written into ``scratch``.

    Raises:
        VstateError: There is no such workload.
    """
    if request.workload == "smoke":
        path = scratch / "smoke.jsonl"
        path.write_text("".join(line.model_dump_json() + "\n" for line in smoke(media)), encoding="utf-8")
        return path
    path = Path(request.workload)
    if not path.exists():
        raise VstateError(f"unknown workload {request.workload}: give smoke or a JSONL file")
    return path


def run_engine(request: RunRequest, told: Callable[[EngineMessage], None]) -> RunManifest:
    """Make the run ``request.out``.

    Args:
        request: What to run.
        told: Called with each message of the engine process.

    Raises:
        VstateError: The call cannot be carried out, or the engine failed. A run that never
            started leaves nothing behind; one that failed later keeps its trace and log.
    """
    with tempfile.TemporaryDirectory(prefix="vstate-model-") as scratch:
        model = resolve_model(request, Path(scratch))
        workload = workload_file(request, model.media_kinds, Path(scratch))
        scanned = scan_workload(workload)
        require_vllm()
        make_run_folder(request.out)
        manifest = _manifest(request, model)
        job = EngineJob(
            model=model.location,
            arguments=model.arguments,
            workload=str(workload.resolve()),
            requests=scanned.requests,
            in_order_of_time=scanned.in_order_of_time,
            referenced=tuple(sorted(scanned.referenced)),
            skip_too_long=request.skip_too_long,
            seed=request.seed,
            placeholders=model.media.placeholders if model.media else {},
            text_vocabulary=model.media.text_vocabulary if model.media else 0,
        )
        job_file = Path(scratch) / "job.json"
        job_file.write_text(job.model_dump_json(), encoding="utf-8")
        try:
            write_manifest(request.out / RUN_FILE, manifest)
            last = _follow(request, job_file, told)
        except BaseException:
            remove_if_no_request(request.out)
            raise
    if last.kind != "done":
        kept = remove_if_no_request(request.out)
        where = f"; the trace up to there and {ENGINE_LOG} are in {request.out}" if kept else ""
        raise VstateError(f"{last.error or 'the engine process ended without a word'}{where}")
    if not any((request.out / EVENTS_FOLDER).glob("*/request-*.arrows")):
        raise VstateError(f"the engine ran but left no trace; {request.out / ENGINE_LOG} says why")
    update: dict[str, Any] = {"outcome": count_outcome(request.out), "skipped_requests": last.skipped}
    if manifest.modelled is not None:
        update["modelled"] = manifest.modelled.model_copy(
            update={"seconds": last.modelled_seconds, "costs": last.costs}
        )
    manifest = manifest.model_copy(update=update)
    write_manifest(request.out / RUN_FILE, manifest)
    return manifest


def _manifest(request: RunRequest, model: ResolvedModel) -> RunManifest:
    place = {"engine_core": "own process" if request.own_process else "in process"}
    return RunManifest(
        vstate_version=__version__,
        created_wall_ns=time.time_ns(),
        engine=request.engine,
        model=request.model,
        workload=request.workload,
        seed=request.seed,
        settings=model.shown_arguments | place,
        machine=this_machine(),
        origin=model.origin,
        modelled=_modelled(model, model.step_time) if model.step_time else None,
    )


def _modelled(model: ResolvedModel, step_time: StepTime) -> Modelled:
    return Modelled(
        device=model.device.name if model.device else "",
        step_time=f"{step_time.evidence}: {step_time.source}",
        media="modelled: one processed item of each kind and size stands for all of that size",
        tokens="modelled: seeded tokens, drafts accepted at the assumed rates",
    )


def this_machine() -> Machine:
    """Describe the machine as far as figures depend on it."""
    return Machine(
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        architecture=platform.machine(),
        python=platform.python_version(),
    )


def _environment(request: RunRequest) -> dict[str, str]:
    """Environment of the engine process: what makes a run repeat, and what a machine without a hub needs."""
    own = {
        "PYTHONHASHSEED": str(request.seed),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1" if request.own_process else "0",
        "VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", CACHE_SPACE_GIB),
        "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),
        "VLLM_NO_USAGE_STATS": "1",
    }
    if request.model.startswith("tiny/"):
        # Threads of a model this small wait for each other most of the time, and spin while they do.
        own["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    return os.environ | own | child_environment(request.out.resolve(), request.max_disk_bytes)


def _follow(request: RunRequest, job_file: Path, told: Callable[[EngineMessage], None]) -> EngineMessage:
    """Run the engine process and return its last message."""
    last = EngineMessage(kind="starting")
    told(last)
    log = os.open(request.out / ENGINE_LOG, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE_MODE)
    command = [sys.executable, "-m", f"vstate.tracer.engines.{request.engine}", str(job_file)]
    # A session of its own: whatever it leaves behind (an engine core, workers) is ended with it.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=log,
        env=_environment(request),
        encoding="utf-8",
        start_new_session=True,
    )
    os.close(log)
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            last = EngineMessage.model_validate_json(line)
            told(last)
        process.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
        _end_session(process)
    if last.kind not in ("done", "failed"):
        return EngineMessage(kind="failed", error=f"the engine process ended with code {process.returncode}")
    return last


def _stop(number: int, _: FrameType | None) -> None:
    """End the launcher on a signal as on an error, so that nothing it started goes on."""
    raise SystemExit(128 + number)


def _end_session(process: subprocess.Popen[str]) -> None:
    """End the engine process and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        if number == signal.SIGTERM:
            time.sleep(0.5)
    process.wait()
