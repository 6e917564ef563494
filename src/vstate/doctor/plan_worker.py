"""The worker of a plan: the model on the meta device, and the memory that a plan assumes."""

from __future__ import annotations

import os

from vstate.inventory.tensors import shape_bytes
from vstate.schemas.errors import VstateError
from vstate.tracer.engines.meta_model import build_draft, parameters_of
from vstate.tracer.engines.stand_in import StandInWorker


class PlanWorker(StandInWorker):
    """Builds target and draft for their specs and answers for the memory of the pool."""

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Build the model, and a draft that is a model, on the meta device."""
        super().load_model(load_dummy_weights=load_dummy_weights)
        self.draft = build_draft(self.vllm_config)

    def determine_available_memory(self) -> int:
        """Return the bytes that the pool may take.

        What was not given is assumed: the share of the machine's memory that vLLM may use, less the weights.

        Raises:
            VstateError: The memory of the device cannot be known here.
        """
        cache = self.vllm_config.cache_config
        if cache.kv_cache_memory_bytes is not None:
            return int(cache.kv_cache_memory_bytes)
        if cache.num_gpu_blocks_override is not None:
            return super().determine_available_memory()
        if self.vllm_config.device_config.device_type != "cpu":
            raise VstateError(
                "the memory of the device is not known before a start; give --kv-cache-bytes, as in 16GiB"
            )
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return int(total * cache.gpu_memory_utilization) - shape_bytes(parameters_of(self.model, self.draft))
