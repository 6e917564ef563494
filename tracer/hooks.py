"""All hooks of one engine core.

A hook replaces a method on one instance, so that other engines of the process, and
subclasses of a fork, are left as they are. What a hook records is guarded: a fault is
counted and told once, and vLLM's own call is always made exactly once with the caller's
arguments.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from vstate.tracer.admission_hook import AdmissionHook
from vstate.tracer.encoder_hooks import EncoderHooks
from vstate.tracer.live_requests import enter_live_requests
from vstate.tracer.pool_hooks import PoolHooks
from vstate.tracer.recorder import Recorder
from vstate.tracer.request_hooks import RequestHooks
from vstate.tracer.snapshots import take_snapshot
from vstate.tracer.step_hooks import StepHooks
from vstate.tracer.wrapping import HookContext


class EngineHooks:
    """The hooks of one scheduler, its pools and its encoder cache."""

    def __init__(self, scheduler: Any, recorder: Recorder, secret: bytes) -> None:
        """Prepare them; ``secret`` is the run's key for identities."""
        self._context = HookContext(scheduler, recorder, secret)
        self._admission: AdmissionHook | None = None

    def install(self) -> None:
        """Put all hooks in place and take the snapshot the trace starts from.

        Raises:
            Exception: A hook does not fit; then none is left in place.
        """
        context = self._context
        try:
            for index in range(len(context.pools)):
                PoolHooks(context, index).install()
            EncoderHooks(context).install()
            requests, admission = RequestHooks(context), AdmissionHook(context)
            self._admission = admission
            requests.install()
            admission.install()
            StepHooks(context, requests, admission).install()
            context.recorder.boundary(monotonic_ns(), self._first_snapshot)
        except BaseException:
            self.uninstall()
            raise

    def uninstall(self) -> None:
        """Take all hooks away; to be called on the scheduler's thread, between two steps."""
        if self._admission is not None:
            self._admission.disarm()
        self._context.undo()

    def _first_snapshot(self) -> None:
        enter_live_requests(self._context)
        self.snapshot()

    def snapshot(self) -> None:
        """Write the engine's books whole; to be called on the scheduler's thread."""
        take_snapshot(self._context)
