"""A worker without a forward: it builds the model for its specs and makes up tokens.

Scheduler, KV-cache manager and pools above it are vLLM's own. The model is built on the
meta device, so that no weight takes memory (recipe: `get_kv_cache_spec` of vLLM 0.32's GPU
model runner, without its tensors).
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

from vstate.tracer.engines.meta_model import build_target, init_one_rank

AVAILABLE_BYTES = 1 << 40
"""Memory the worker claims for the pool; the pool is sized by `num_gpu_blocks_override`."""
SAMPLED_TOKEN = 100


class StandInWorker(WorkerBase):
    """Answers each scheduled request with one token once its prompt is computed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take vLLM's arguments unchanged."""
        super().__init__(*args, **kwargs)
        self._prompt_left: dict[str, int] = {}

    def init_device(self) -> None:
        """Set up the distributed state that layers ask for while they are built."""
        self.device = torch.device("cpu")
        init_one_rank(self)

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Build the model on the meta device."""
        self.model = build_target(self.vllm_config)

    def get_model(self) -> Any:
        """Return the model on the meta device."""
        return self.model

    def get_kv_cache_spec(self) -> dict[str, Any]:
        """Return the spec of each layer that keeps a cache of its own."""
        from vllm.config import get_layers_from_vllm_config
        from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

        layers: dict[str, Any] = get_layers_from_vllm_config(self.vllm_config, AttentionLayerBase)
        own = {n: layer for n, layer in layers.items() if not getattr(layer, "kv_sharing_target_layer_name", None)}
        specs = {name: layer.get_kv_cache_spec(self.vllm_config) for name, layer in own.items()}
        return {name: spec for name, spec in specs.items() if spec is not None}

    def determine_available_memory(self) -> int:
        """Return more than any pool needs, in bytes."""
        return AVAILABLE_BYTES

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """Allocate nothing."""

    def compile_or_warm_up_model(self) -> CompilationTimes:
        """Warm nothing up."""
        return CompilationTimes(0.0, 0.0)

    def get_supported_tasks(self) -> tuple[str, ...]:
        """Serve generation only."""
        return ("generate",)

    def take_draft_token_ids(self) -> None:
        """Draft nothing."""
        return None

    def execute_model(self, scheduler_output: Any) -> ModelRunnerOutput:
        """Return one token for each request whose prompt is computed with this step."""
        scheduled = scheduler_output.num_scheduled_tokens
        if not scheduled:
            return EMPTY_MODEL_RUNNER_OUTPUT
        left = self._prompt_left
        for request_id in scheduler_output.finished_req_ids:
            left.pop(request_id, None)
        for new in scheduler_output.scheduled_new_reqs:
            left[new.req_id] = len(new.prompt_token_ids) - new.num_computed_tokens
        cached = scheduler_output.scheduled_cached_reqs
        if cached.resumed_req_ids:
            lengths = zip(cached.req_ids, cached.num_computed_tokens, strict=True)
            for request_id, computed in lengths:
                if request_id in cached.resumed_req_ids:
                    left[request_id] = len(cached.all_token_ids[request_id]) - computed
        request_ids = list(scheduled)
        tokens: list[list[int]] = []
        for request_id, count in scheduled.items():
            if left[request_id] > 0:
                left[request_id] -= count
            tokens.append([SAMPLED_TOKEN] if left[request_id] <= 0 else [])
        index = {request_id: number for number, request_id in enumerate(request_ids)}
        return ModelRunnerOutput(req_ids=request_ids, req_id_to_index=index, sampled_token_ids=tokens)
