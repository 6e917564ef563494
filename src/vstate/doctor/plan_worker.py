"""The worker of a plan: the model on the meta device, and the memory that a plan assumes."""

from __future__ import annotations

import os
from typing import Any

from vstate.schemas.errors import VstateError
from vstate.tracer.engines.stand_in import StandInWorker


class PlanWorker(StandInWorker):
    """Builds target and draft for their specs and answers for the memory of the pool."""

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Build the model, and a draft that is a model, on the meta device."""
        super().load_model(load_dummy_weights=load_dummy_weights)
        speculative = self.vllm_config.speculative_config
        if speculative is not None and (speculative.use_eagle() or speculative.uses_draft_model()):
            self.draft = self._build_draft(speculative)

    def _build_draft(self, speculative: Any) -> Any:
        """Build the draft last, as vLLM does: the order of layers is the order in which they register.

        Source: `load_model` and `_get_model` of the proposers in vLLM 0.32 ``v1/spec_decode``.
        """
        import torch
        from vllm.compilation.backends import set_model_tag
        from vllm.model_executor.model_loader.utils import initialize_model
        from vllm.utils.torch_utils import set_default_torch_dtype
        from vllm.v1.spec_decode.draft_model import DraftModelProposer
        from vllm.v1.spec_decode.eagle import EagleProposer

        external = speculative.uses_draft_model()
        cls = DraftModelProposer if external else EagleProposer
        # Only its way to the draft's configuration is wanted; its constructor makes buffers on a device.
        proposer = cls.__new__(cls)
        proposer.vllm_config, proposer.speculative_config = self.vllm_config, speculative
        config = proposer._create_draft_vllm_config()
        model = speculative.draft_model_config
        tag, prefix = ("draft_model", {"prefix": "draft_model"}) if external else ("eagle_head", {})
        with set_default_torch_dtype(model.dtype), torch.device("meta"), set_model_tag(tag):
            return initialize_model(vllm_config=config, model_config=model, **prefix)

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
        return int(total * cache.gpu_memory_utilization) - self.weight_bytes()

    def weight_bytes(self) -> int:
        """Bytes of the parameters as the model declares them, those that are shared counted once."""
        models = [self.model, getattr(self, "draft", None)]
        parameters = {id(p): p for model in models if model is not None for p in model.parameters()}
        return sum(p.numel() * p.element_size() for p in parameters.values())
