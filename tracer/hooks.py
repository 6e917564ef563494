"""All hooks of one engine core.

A hook replaces a method on one instance, so that other engines of the process, and
subclasses of a fork, are left as they are. What a hook records is guarded: a fault is
counted and told once, and vLLM's own call is always made exactly once with the caller's
arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from vstate.tracer.admission_hook import AdmissionHook
from vstate.tracer.encoder_hooks import EncoderHooks
from vstate.tracer.pool_hooks import PoolHooks
from vstate.tracer.recorder import Recorder
from vstate.tracer.request_hooks import RequestHooks
from vstate.tracer.step_hooks import StepHooks
from vstate.tracer.wrapping import HookContext


def install_hooks(scheduler: Any, recorder: Recorder, secret: bytes) -> Callable[[], None]:
    """Hook ``scheduler`` and its pools, and take the snapshot the trace starts from.

    Returns:
        A function that takes a further snapshot; to be called on the scheduler's thread.
    """
    context = HookContext(scheduler, recorder, secret)
    for index in range(len(context.pools)):
        PoolHooks(context, index).install()
    EncoderHooks(context).install()
    requests, admission = RequestHooks(context), AdmissionHook(context)
    requests.install()
    admission.install()
    steps = StepHooks(context, requests, admission)
    steps.install()
    recorder.boundary(monotonic_ns(), steps.snapshot)
    return steps.snapshot
