"""The entry point for `vllm.general_plugins`: it does nothing unless tracing is switched on.

vLLM calls it in every process, may call it more than once, and calls it from inside
`EngineCore.__init__` in an engine core's own process. What it replaces must therefore be
looked up later than that: the scheduler's class is, when the scheduler is made.
"""

from __future__ import annotations

import functools
import logging
import sys
import weakref
from collections.abc import Callable
from typing import Any

from vstate.schemas.manifests import AnchorState
from vstate.tracer.settings import TraceSettings, trace_settings

LOGGER = logging.getLogger("vllm.vstate")


def register() -> None:
    """Arrange for each engine core of this process to be traced, where the environment asks for it.

    Whatever goes wrong is one log line: vLLM calls this unguarded while it starts.
    """
    try:
        settings = trace_settings()
        if settings is not None:
            _arrange(settings)
    except Exception as error:
        LOGGER.error("vstate: tracing is off: %s: %s", type(error).__name__, error)


def _arrange(settings: TraceSettings) -> None:
    from vstate.tracer.anchors import WRAPPER_MARK, check_anchors, misfits
    from vstate.tracer.memory_hooks import hook_memory

    anchors = check_anchors()
    if bad := misfits(anchors):
        LOGGER.error("vstate: tracing is off, this vLLM does not fit: %s; see vstate doctor", "; ".join(bad))
        return
    from vllm.config.scheduler import SchedulerConfig
    from vllm.v1.engine.core import EngineCore

    if hasattr(SchedulerConfig.get_scheduler_cls, WRAPPER_MARK):
        return
    _replace(SchedulerConfig, "get_scheduler_cls", _traced_class(settings, anchors))
    _replace(EngineCore, "preprocess_add_request", _keep_external_id)
    _replace(EngineCore, "shutdown", _close_first)
    hook_memory(settings, _replace)


def _replace(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """Replace a method of a class by what ``make`` makes of it, with the original kept on it."""
    from vstate.tracer.anchors import WRAPPER_MARK

    original = getattr(owner, name)
    wrapper = functools.wraps(original)(make(original))
    setattr(wrapper, WRAPPER_MARK, original)
    setattr(owner, name, wrapper)


def _traced_class(settings: TraceSettings, anchors: tuple[AnchorState, ...]) -> Callable[[Any], Callable[..., Any]]:
    """Make `get_scheduler_cls` return a constructor that traces what the class makes.

    The scheduler is complete only then, whatever a subclass adds after its parent's ``__init__``.
    """

    def make(get_scheduler_cls: Any) -> Callable[..., Any]:
        def traced_get_scheduler_cls(self: Any) -> Any:
            scheduler_class = get_scheduler_cls(self)

            @functools.wraps(scheduler_class, updated=())
            def construct(*args: Any, **kwargs: Any) -> Any:
                scheduler = scheduler_class(*args, **kwargs)
                # Called from `EngineCore.__init__`, where nothing else gives the core away yet.
                _start(scheduler, settings, anchors, sys._getframe(1).f_locals.get("self"))
                return scheduler

            return construct

        return traced_get_scheduler_cls

    return make


def _start(scheduler: Any, settings: TraceSettings, anchors: tuple[AnchorState, ...], core: Any) -> None:
    from vstate.tracer.switch import Switch

    try:
        switch = Switch(scheduler, settings, anchors, _waker(core))
        scheduler.vstate_switch = switch
        switch.start()
    except Exception as error:  # serving matters more than its trace
        LOGGER.error("vstate: tracing is off, it could not start: %s: %s", type(error).__name__, error)


def _waker(core: Any) -> Callable[[], None]:
    """Return what makes an idle core go through its loop once.

    A core in the process of its driver has no loop of its own: it is woken by the next step.
    """
    from vllm.v1.engine import EngineCoreRequestType

    found = weakref.ref(core) if core is not None else lambda: None
    wakeup = getattr(EngineCoreRequestType, "WAKEUP", None)

    def wake() -> None:
        input_queue = getattr(found(), "input_queue", None)
        if input_queue is not None and wakeup is not None:
            input_queue.put_nowait((wakeup, None))

    return wake


def _keep_external_id(preprocess: Any) -> Callable[..., Any]:
    """Carry the client's request id into the core, where vLLM drops it."""

    def traced_preprocess(self: Any, request: Any) -> Any:
        result = preprocess(self, request)
        try:
            result[0].vstate_external_id = request.external_req_id
        except Exception as error:
            LOGGER.debug("vstate: no external id for %s: %s", request, error)
        return result

    return traced_preprocess


def _close_first(shutdown: Any) -> Callable[..., Any]:
    """Close the trace before the workers are waited for: a front end kills a core that takes too long."""

    def traced_shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        switch = getattr(getattr(self, "scheduler", None), "vstate_switch", None)
        try:
            if switch is not None:
                switch.close()
        except Exception as error:
            LOGGER.warning("vstate: closing the trace failed: %s: %s", type(error).__name__, error)
        return shutdown(self, *args, **kwargs)

    return traced_shutdown
