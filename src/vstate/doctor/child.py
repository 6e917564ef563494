"""A process of its own for what needs vLLM: a broken fork may raise, hang or crash there, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import TypeVar

from pydantic import BaseModel

from vstate.tracer.settings import TRACE_DIR, TRACE_RUN

AnswerT = TypeVar("AnswerT", bound=BaseModel)


class ChildFailure(Exception):
    """The child ended without an answer; the text is one line that says how."""


def ask_child(
    module: str, question: BaseModel, answer: type[AnswerT], environment: Mapping[str, str], timeout_seconds: float
) -> AnswerT:
    """Run ``module`` as a process that is given ``question`` and return what it answers.

    Raises:
        ChildFailure: It crashed, ended without an answer, or took longer than ``timeout_seconds``.
    """
    own = {"HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"), "VLLM_NO_USAGE_STATS": "1"}
    inherited = {name: value for name, value in os.environ.items() if name not in (TRACE_DIR, TRACE_RUN)}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=inherited | own | dict(environment),
            encoding="utf-8",
            # A session of its own: whatever it starts is ended with it.
            start_new_session=True,
        )
        try:
            told, _ = process.communicate(question.model_dump_json(), timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            raise ChildFailure(f"it did not answer within {timeout_seconds:.0f} s") from None
        finally:
            _end_session(process)
        if not told:
            log.seek(0)
            lines = [line.strip() for line in log.read().splitlines() if line.strip()]
            raise ChildFailure(f"it ended with code {process.returncode}: {lines[-1] if lines else 'it said nothing'}")
    return answer.model_validate_json(told)


def _end_session(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        return
    process.wait()


def answer_parent(question: type[AnswerT], answer: Callable[[AnswerT], BaseModel]) -> None:
    """Read the question from standard input and write the answer to the parent's pipe.

    What else is printed goes to standard error. Ends the process at once: threads and native
    libraries of vLLM have nothing left to do.
    """
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    told = answer(question.model_validate_json(sys.stdin.read()))
    pipe.write(told.model_dump_json())
    pipe.close()
    sys.stderr.flush()
    os._exit(0)
