"""Where the bytes of workers and front ends are measured: what of vLLM is replaced, and by what.

None of it is an anchor: an engine without one of these places is traced all the same, and says
in one log line what it does not measure.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from vstate.tracer.media_cache_hooks import measured_from_the_start
from vstate.tracer.settings import TraceSettings
from vstate.tracer.versions import receiver_cache_class
from vstate.tracer.worker_hooks import hook_worker, remember_built
from vstate.tracer.wrapping import LOGGER

_CACHES = "vllm.multimodal.cache"


def hook_memory(settings: TraceSettings, replace: Callable[[Any, str, Any], None]) -> None:
    """Arrange for the workers and caches of this process to be measured from when they are made.

    Args:
        settings: Where the trace goes.
        replace: Replaces (owner, name) by what a function makes of the original.
    """
    places = (
        ("vllm.v1.worker.worker_base", "WorkerWrapperBase.init_device", hook_worker(settings)),
        ("vllm.model_executor.model_loader.base_loader", "initialize_model", remember_built),
        (_CACHES, "MultiModalProcessorOnlyCache.__init__", measured_from_the_start(settings, "frontend")),
        (_CACHES, f"{receiver_cache_class()}.__init__", measured_from_the_start(settings, "receiver")),
    )
    for module, path, make in places:
        try:
            owner: Any = importlib.import_module(module)
            *classes, name = path.split(".")
            for part in classes:
                owner = getattr(owner, part)
            replace(owner, name, make)
        except (ImportError, AttributeError) as error:
            LOGGER.warning("vstate: %s.%s is not measured here: %s", module, path, error)
