"""Measures what a worker holds, where its tensors are: once when its pools are there, then per encoder output.

A worker is met in ``WorkerWrapperBase.init_device``, which every executor calls after the plugin
was loaded and before the model is; the hooks then sit on that one worker.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from vstate.inventory.outside import ENCODER_OUTPUT
from vstate.inventory.parts import BUILT, built_model
from vstate.inventory.tensors import storage_bytes, tensors_in, view_bytes
from vstate.inventory.worker_state import worker_components
from vstate.schemas.tables.memory import MemoryKind, MemoryPhase
from vstate.schemas.vocabulary import NOT_APPLICABLE
from vstate.tracer.anchors import WRAPPER_MARK
from vstate.tracer.identity import keyed_identity
from vstate.tracer.settings import TraceSettings
from vstate.tracer.state_session import StateSession
from vstate.tracer.wrapping import LOGGER

DEVICE_FIGURES = (
    (MemoryKind.DEVICE_ALLOCATED, "allocated_bytes.all.current"),
    (MemoryKind.DEVICE_RESERVED, "reserved_bytes.all.current"),
    (MemoryKind.DEVICE_PEAK, "allocated_bytes.all.peak"),
)
"""What of ``torch.cuda.memory_stats`` is written at the end of each phase. Not shown: it needs a GPU."""


def remember_built(initialize_model: Callable[..., Any]) -> Callable[..., Any]:
    """Make the loader keep what a model looked like when it was built, before its weights are processed."""

    def traced_initialize_model(*args: Any, **kwargs: Any) -> Any:
        model = initialize_model(*args, **kwargs)
        try:
            setattr(model, BUILT, built_model(model))
        except Exception as error:
            LOGGER.warning("vstate: weights are not measured (%s: %s)", type(error).__name__, error)
        return model

    return traced_initialize_model


def hook_worker(settings: TraceSettings) -> Callable[[Any], Callable[..., Any]]:
    """Return what makes ``WorkerWrapperBase.init_device`` put the hooks on its worker."""

    def make(init_device: Any) -> Callable[..., Any]:
        def traced_init_device(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = init_device(self, *args, **kwargs)
            try:
                WorkerHooks(self.worker, settings).install()
            except Exception as error:  # serving matters more than its trace
                LOGGER.warning("vstate: this worker is not measured (%s: %s)", type(error).__name__, error)
            return result

        return traced_init_device

    return make


class WorkerHooks:
    """The hooks of one worker."""

    def __init__(self, worker: Any, settings: TraceSettings) -> None:
        """Prepare them; nothing is written before the pools are allocated."""
        self._worker = worker
        self._settings = settings
        self._session: StateSession | None = None
        self._device: list[tuple[MemoryPhase, MemoryKind, int]] = []
        self._encoded: set[str] = set()
        self._failed = False

    def install(self) -> None:
        """Put the hooks in place on a worker that has a model runner; a stand-in without one holds no tensors."""
        if getattr(self._worker, "model_runner", None) is None:
            return
        self._after("load_model", lambda *_, **__: self._take_device_figures(MemoryPhase.LOADED))
        self._after("initialize_from_config", self._allocated)
        self._after("compile_or_warm_up_model", lambda: self._take_device_figures(MemoryPhase.READY))
        self._after("execute_model", self._executed)
        self._after("shutdown", self._close)

    def _after(self, name: str, record: Callable[..., Any]) -> None:
        """Call ``record`` with the arguments of each call of a method, after it."""
        method = getattr(self._worker, name)

        @functools.wraps(method)
        def traced(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if not self._failed:
                try:
                    record(*args, **kwargs)
                except Exception as error:
                    self._failed = True
                    LOGGER.warning("vstate: %s is not measured (%s: %s)", name, type(error).__name__, error)
            return result

        setattr(traced, WRAPPER_MARK, method)
        setattr(self._worker, name, traced)

    def _allocated(self, kv_cache_config: Any) -> None:
        if self._session is not None:
            return
        worker = self._worker
        found = worker_components(worker.vllm_config, worker.model_runner, kv_cache_config)
        components = [entry.component for entry in found]
        self._session = StateSession(self._settings, "worker", worker_ranks(worker), components)
        log = self._session.log
        for index, entry in enumerate(found):
            log.put(MemoryKind.PLANNED, MemoryPhase.ALLOCATED, index, entry.planned)
            if entry.measured is not None:
                log.put(MemoryKind.MEASURED, MemoryPhase.ALLOCATED, index, entry.measured)
        self._take_device_figures(MemoryPhase.ALLOCATED)

    def _take_device_figures(self, phase: MemoryPhase) -> None:
        self._device += [(phase, kind, figure) for kind, figure in device_figures(self._worker.device)]
        if self._session is not None:
            for taken, kind, figure in self._device:
                self._session.log.put(kind, taken, NOT_APPLICABLE, figure)
            self._device.clear()

    def _executed(self, scheduler_output: Any) -> None:
        """Measure what the encoder left; a step that neither encodes nor frees costs two comparisons."""
        if not (scheduler_output.scheduled_encoder_inputs or scheduler_output.free_encoder_mm_hashes):
            return
        cache = self._worker.model_runner.encoder_cache
        if self._session is None or not isinstance(cache, dict):
            return
        log, component = self._session.log, self._session.index(ENCODER_OUTPUT)
        for identity in cache.keys() - self._encoded:
            tensors = list(tensors_in(cache[identity]))
            media = keyed_identity(identity, self._settings.secret)
            rows = sum(tensor.shape[0] for tensor in tensors)
            log.put(MemoryKind.ITEM, MemoryPhase.SERVING, component, view_bytes(tensors), media, rows)
        self._encoded = set(cache)
        # Entries can be slices of one batch's output: the whole batch stays until its last slice is freed.
        resident = storage_bytes(tensors_in(list(cache.values())))
        log.put(MemoryKind.MEASURED, MemoryPhase.SERVING, component, resident)

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()


def device_figures(device: Any) -> list[tuple[MemoryKind, int]]:
    """Return the figures of torch's allocator for a CUDA device, in bytes; none for any other."""
    if getattr(device, "type", "") != "cuda":
        return []
    import torch

    stats = torch.cuda.memory_stats(device)
    return [(kind, int(stats.get(name, 0))) for kind, name in DEVICE_FIGURES]


def worker_ranks(worker: Any) -> tuple[int, int, int]:
    """Return a worker's data, pipeline and tensor parallel rank; within an engine tensor ranks come first."""
    parallel = worker.vllm_config.parallel_config
    pipeline, tensor = divmod(worker.rank, parallel.tensor_parallel_size)
    return parallel.data_parallel_index, pipeline, tensor
