"""Errors that a person can act on."""

from __future__ import annotations

import importlib.util


class VstateError(Exception):
    """A fault of the input or of the call: one line, what is wrong and what to do.

    The command line prints it without a traceback and exits with ``exit_code``.
    """

    exit_code = 2


class MissingExtraError(VstateError):
    """A command needs an optional part of vstate that is not installed."""

    def __init__(self, module: str, extra: str) -> None:
        """Name the module that is missing and the extra that brings it."""
        super().__init__(f"{module} is not installed; install it with: pip install 'vstate[{extra}]'")


def require_vllm() -> None:
    """Check that a vLLM is installed, without importing it.

    Raises:
        VstateError: There is none.
    """
    if importlib.util.find_spec("vllm") is None:
        raise VstateError("vLLM is not installed; install it with: pip install 'vstate[cpu]' (or [cuda])")


def one_line(error: BaseException) -> str:
    """First line of an error that says something, with its type where the type says something too."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where, message = ".".join(str(part) for part in first["loc"]), _first_line(first["msg"])
        message = message.removeprefix("Value error, ")
        return f"{where}: {message}" if where else message
    text = _first_line(str(error))
    return text if isinstance(error, VstateError) else f"{type(error).__name__}: {text}"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
