"""Drives a workload through an engine, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from vstate.schemas.errors import VstateError
from vstate.schemas.workload import WorkloadAbort, WorkloadRequest
from vstate.tracer.engines.arrivals import Arrivals, Line

IDLE_STEPS = 10_000
"""Steps without an output after which a run is given up: the engine is stuck."""


class Ended(NamedTuple):
    """What a step brought a request: a token, and its end if it was the last one."""

    request_id: str
    finished: bool


class EnginePort(Protocol):
    """What the driver needs of an engine."""

    def add(self, request: WorkloadRequest) -> None:
        """Give a request to the engine.

        Raises:
            TooLongError: It does not fit once its media are processed.
        """

    def abort(self, request_id: str) -> None:
        """Give a request up."""

    def has_unfinished(self) -> bool:
        """Whether a step would do something."""

    def step(self) -> list[Ended]:
        """Make one step."""

    def seconds(self) -> float:
        """Return the engine's time since its start."""

    def wait_until(self, seconds: float) -> None:
        """Let time pass up to a moment."""


class TooLongError(VstateError):
    """A request does not fit into the model's length."""


class Driven(NamedTuple):
    """What a drive did."""

    steps: int
    requests: int
    skipped: int


def check_fit(request: WorkloadRequest, prompt_tokens: int, output_tokens: int, max_model_len: int) -> None:
    """Check that a request fits.

    Raises:
        TooLongError: It does not.
    """
    if prompt_tokens + output_tokens > max_model_len:
        raise TooLongError(
            f"request {request.id!r} takes {prompt_tokens} + {output_tokens} tokens, the model takes {max_model_len}; "
            "shorten it, raise max_model_len with --set, or leave such requests out with --too-long skip"
        )


def drive(
    engine: EnginePort,
    lines: Iterable[Line],
    *,
    in_order_of_time: bool = False,
    referenced: Iterable[str] = (),
    skip_too_long: bool = False,
    told: Callable[[int], None],
) -> Driven:
    """Run all lines to their end.

    Args:
        engine: What to drive.
        lines: The workload.
        in_order_of_time: Every line waits for a moment, none earlier than the one before; it is then read as it goes.
        referenced: Requests that lines refer to, for a workload that is read as it goes.
        skip_too_long: Leave out, and count, requests that do not fit.
        told: Called after each step with the requests that have ended.

    Raises:
        VstateError: A request cannot fit or holds media that the model does not take, or the
            engine makes no progress.
    """
    arrivals = Arrivals(lines, in_order_of_time=in_order_of_time, referenced=referenced)
    drive = _Drive(engine, arrivals, skip_too_long)
    steps = quiet = 0
    while drive.goes_on():
        progress = drive.turn(steps)
        steps += 1
        quiet = 0 if progress else quiet + 1
        if quiet > IDLE_STEPS:
            raise VstateError(f"no request made progress in {IDLE_STEPS} steps; see engine.log in the run")
        told(drive.ended)
    return Driven(steps, drive.requests, drive.skipped)


class _Drive:
    """A drive under way, with what it has counted."""

    def __init__(self, engine: EnginePort, arrivals: Arrivals, skip_too_long: bool) -> None:
        self._engine = engine
        self._arrivals = arrivals
        self._skip_too_long = skip_too_long
        self.ended = self.requests = self.skipped = 0

    def goes_on(self) -> bool:
        return bool(self._arrivals) or self._engine.has_unfinished()

    def turn(self, step: int) -> bool:
        """Begin what is due, make a step, and say whether anything moved; waiting for an arrival is no standstill."""
        engine, arrivals = self._engine, self._arrivals
        ready = arrivals.due(step, engine.seconds())
        for line in ready:
            if isinstance(line, WorkloadAbort):
                self._abort(line.id)
            else:
                self._add(line)
        outputs: list[Ended] = []
        if engine.has_unfinished():
            outputs = engine.step()
        elif not ready and not arrivals.waits_for_a_step and arrivals.next_time is not None:
            engine.wait_until(arrivals.next_time)
        now = engine.seconds()
        for request_id, finished in outputs:
            arrivals.happened(request_id, "first_token", now)
            if finished:
                arrivals.happened(request_id, "finish", now)
                self.ended += 1
        return bool(outputs or ready) or not engine.has_unfinished()

    def _abort(self, request_id: str) -> None:
        if not self._arrivals.has_ended(request_id):
            self._engine.abort(request_id)
            self._arrivals.happened(request_id, "finish", self._engine.seconds())
            self.ended += 1

    def _add(self, request: WorkloadRequest) -> None:
        try:
            self._engine.add(request)
            self.requests += 1
        except TooLongError:
            if not self._skip_too_long:
                raise
            self.skipped += 1
            # Who waits for it must not wait for ever.
            for event in ("first_token", "finish"):
                self._arrivals.happened(request.id, event, self._engine.seconds())
