"""`vstate trace on` and `vstate trace off`: switch the tracing of running engines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from vstate.schemas.errors import VstateError
from vstate.tracer.control import SwitchAnswer, SwitchState, live_answers, write_control

ASK_SECONDS = 0.1

Where = Annotated[
    Path, typer.Argument(metavar="RUN|DIR", help="A run whose engines are up, or a folder of runs (VSTATE_TRACE_DIR).")
]
Wait = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Longest wait for the engines to answer.")]


def on(where: Where, wait: Wait = 10.0) -> None:
    """Switch the tracing of running engines on; each writes a new process folder from then on."""
    _switch(where, SwitchState.ON, wait)


def off(where: Where, wait: Wait = 10.0) -> None:
    """Switch the tracing of running engines off; what they have written is complete then."""
    _switch(where, SwitchState.OFF, wait)


def _switch(where: Path, wanted: SwitchState, wait: float) -> None:
    runs = _live_runs(where)
    for run in runs:
        try:
            write_control(run, wanted)
        except OSError as error:
            raise VstateError(
                f"cannot write {error.filename}: {error.strerror}; call it as the user that runs the engines"
            ) from error
    answers = _wait_for(runs, wanted, wait)
    for run, answer in answers:
        typer.echo(f"{run}: {answer.engine}: {_sentence(answer, wanted)}")
    if any(answer.state is SwitchState.FAILED for _, answer in answers):
        raise VstateError("an engine could not be switched on; mend what its log tells, then switch it off and on")


def _sentence(answer: SwitchAnswer, wanted: SwitchState) -> str:
    if answer.state is SwitchState.FAILED:
        return "failed"
    if answer.state is not wanted:
        return f"still {answer.state}, {wanted} from its next step on"
    return f"{answer.state}, events/{answer.folder}" if answer.folder else str(answer.state)


def _live_runs(where: Path) -> list[Path]:
    """Return the runs at ``where`` with an engine that is up.

    Raises:
        VstateError: There is none.
    """
    try:
        inside = sorted(entry for entry in where.iterdir() if entry.is_dir())
        runs = [folder for folder in (where, *inside) if live_answers(folder)]
    except OSError as error:
        raise VstateError(f"cannot read {error.filename}: {error.strerror}; give a run or a folder of runs") from error
    if not runs:
        raise VstateError(f"no engine of {where} is up; start vLLM with VSTATE_TRACE_DIR={where} or vstate trace serve")
    return runs


def _wait_for(runs: list[Path], wanted: SwitchState, wait: float) -> list[tuple[Path, SwitchAnswer]]:
    """Return the last answers, as soon as no live engine is left that has yet to turn."""
    deadline = time.monotonic() + wait
    last = (SwitchState.OFF,) if wanted is SwitchState.OFF else (SwitchState.ON, SwitchState.FAILED)
    while True:
        answers = [(run, answer) for run in runs for answer in live_answers(run)]
        if time.monotonic() >= deadline or all(answer.state in last for _, answer in answers):
            return answers
        time.sleep(ASK_SECONDS)
