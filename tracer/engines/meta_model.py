"""Builds a model, its draft and one rank's share of them on the meta device: shapes and specs without memory.

Recipe: `load_model` of the GPU worker and of the proposers in vLLM 0.32's ``v1/spec_decode``, without their tensors.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def init_one_rank(worker: Any) -> None:
    """Set up the distributed state that layers ask for while they are built, for one rank of however many.

    There is one process. With tensor parallelism its group says that it has all ranks, so that each layer takes
    the share of the first one; nothing is ever exchanged.

    Args:
        worker: vLLM's worker; its device and ranks are known.
    """
    from vllm.distributed import parallel_state
    from vllm.platforms import current_platform
    from vllm.v1.worker.gpu_worker import init_worker_distributed_environment

    if parallel_state.model_parallel_is_initialized():
        return
    method = worker.distributed_init_method
    os.environ.setdefault("VLLM_DIST_IDENT", method.split(":")[-1])
    parallel = worker.vllm_config.parallel_config
    backend = current_platform.dist_backend
    if parallel.distributed_executor_backend != "uni" or parallel.tensor_parallel_size == 1:
        init_worker_distributed_environment(worker.vllm_config, worker.rank, method, worker.local_rank, backend)
        return
    parallel_state.init_distributed_environment(1, 0, method, worker.local_rank, backend)
    parallel_state.ensure_model_parallel_initialized(1, 1)
    parallel_state.get_tp_group().world_size = parallel.tensor_parallel_size


def build_target(vllm_config: Any) -> Any:
    """Build the model on the meta device."""
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    with set_default_torch_dtype(vllm_config.model_config.dtype), torch.device("meta"):
        return initialize_model(vllm_config=vllm_config)


def build_draft(vllm_config: Any) -> Any | None:
    """Build the draft, where it is a model; None where it is not.

    It comes last, as in vLLM: the order of layers is the order in which they register.
    """
    from vllm.compilation.backends import set_model_tag
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm.v1.spec_decode.draft_model import DraftModelProposer
    from vllm.v1.spec_decode.eagle import EagleProposer

    speculative = vllm_config.speculative_config
    if speculative is None or not (speculative.use_eagle() or speculative.uses_draft_model()):
        return None
    external = speculative.uses_draft_model()
    cls = DraftModelProposer if external else EagleProposer
    # Only its way to the draft's configuration is wanted; its constructor makes buffers on a device.
    proposer = cls.__new__(cls)
    proposer.vllm_config, proposer.speculative_config = vllm_config, speculative
    with _settings_kept(vllm_config):
        config = proposer._create_draft_vllm_config()
    model = speculative.draft_model_config
    tag, prefix = ("draft_model", {"prefix": "draft_model"}) if external else ("eagle_head", {})
    with set_default_torch_dtype(model.dtype), torch.device("meta"), set_model_tag(tag):
        return initialize_model(vllm_config=config, model_config=model, **prefix)


def parameters_of(*models: Any) -> Iterator[Any]:
    """Yield the parameters of models; one that is None has none."""
    for model in models:
        if model is not None:
            yield from model.parameters()


@contextmanager
def _settings_kept(vllm_config: Any) -> Iterator[None]:
    """Keep the settings of caches and scheduler, which a draft's configuration shares with the target's.

    Making it asks the platform again, and a CPU's changes them for models with latent attention.
    """
    cache, scheduler = vllm_config.cache_config, vllm_config.scheduler_config
    before = cache.block_size, cache.enable_prefix_caching
    chunks = scheduler.enable_chunked_prefill, scheduler.max_num_batched_tokens
    try:
        yield
    finally:
        cache.block_size, cache.enable_prefix_caching = before
        scheduler.enable_chunked_prefill, scheduler.max_num_batched_tokens = chunks
