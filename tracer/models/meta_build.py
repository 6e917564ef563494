"""Lets vLLM's CPU platform build models on the meta device whose kernels only a GPU has.

vLLM asks the platform for kernels while it builds a layer, and refuses the layer where there
are none. On the meta device nothing is ever computed: what is wanted are the shapes of the
parameters and the specs of the caches. Each patch below answers one such question for the
time of the construction, and what it answers is no part of any shape.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from vstate.schemas.errors import VstateError

Make = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes what stands in the place of a function from the function."""


@contextmanager
def construction_patches() -> Iterator[None]:
    """Patch vLLM while a model is built on the meta device, and put it back after.

    Raises:
        VstateError: The installed vLLM has no such function; it may decide elsewhere.
    """
    from vllm.model_executor.layers.fused_moe import config, unquantized_fused_moe_method
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.attention.backends.mla import flashmla_sparse

    with ExitStack() as stack:
        for owner, name, make in (
            (config.FusedMoEConfig, "__post_init__", _without_gate),
            (unquantized_fused_moe_method, "select_unquantized_moe_backend", _kernel_of_plain_experts),
            (CpuPlatform, "get_attn_backend_cls", _sparse_backend_of_hopper),
            (flashmla_sparse, "current_workspace_manager", _workspace_without_memory),
        ):
            stack.enter_context(_replaced(owner, name, make))
        yield


@contextmanager
def _replaced(owner: Any, name: str, make: Make) -> Iterator[None]:
    # What the owner itself holds, so that a class method is put back as one and not bound to its class.
    held = vars(owner).get(name)
    if held is None:
        where = getattr(owner, "__qualname__", owner.__name__)
        raise VstateError(
            f"this vLLM has no {where}.{name}, without which the model cannot be built for its shapes; "
            "install vLLM 0.32"
        )
    wrapped = classmethod(make(held.__func__)) if isinstance(held, classmethod) else make(held)
    setattr(owner, name, wrapped)
    try:
        yield
    finally:
        setattr(owner, name, held)


def _without_gate(original: Callable[..., Any]) -> Callable[..., Any]:
    """Accept experts without a gate (Nemotron's squared ReLU), which vLLM has on GPUs only.

    The refusal is the last statement of the method, so that the configuration is complete by
    then. Widths follow from the activation, which stays: one projection up and not two.
    """

    def post_init(self: Any) -> None:
        try:
            original(self)
        except NotImplementedError as error:
            if self.is_act_and_mul or "is_act_and_mul" not in str(error):
                raise

    return post_init


def _kernel_of_plain_experts(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give experts whose activation has no kernel on a CPU the one for SiLU (Nemotron, Step).

    The kernel's class pads nothing before weights are loaded, and weights are made from the
    layer's own configuration, which the copy that is asked about here never reaches.
    """

    def select(moe_config: Any) -> Any:
        from vllm.model_executor.layers.fused_moe.activation import MoEActivation

        try:
            return original(moe_config)
        except NotImplementedError:
            plain = copy.copy(moe_config)
            plain.activation = MoEActivation.SILU
            return original(plain)

    return select


def _sparse_backend_of_hopper(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give sparse latent attention (DeepSeek V3.2) the backend that a Hopper GPU has for it.

    Without the patch the CPU platform says that there is none. The specs of latent cache and
    index come from the layers: rank, rotary width, type of the cache.
    """

    def get_attn_backend_cls(cls: Any, selected_backend: Any, attn_selector_config: Any, **others: Any) -> Any:
        from vllm.v1.attention.backends.registry import AttentionBackendEnum

        if attn_selector_config.use_sparse:
            return AttentionBackendEnum.FLASHMLA_SPARSE.get_path()
        return original(cls, selected_backend, attn_selector_config, **others)

    return get_attn_backend_cls


def _workspace_without_memory(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let that backend reserve its scratch memory, of which there is none here.

    A GPU's worker has a manager for it. What is reserved belongs to the kernel's calls; neither
    parameters nor caches ask for it, and its constructor keeps nothing of what it gets.
    """

    class NoMemory:
        def get_simultaneous(self, *specs: Any) -> list[Any]:
            import torch

            return [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in specs]

    return NoMemory


SPARSE_BLOCK_TOKENS = 64
"""Tokens of a block that the Hopper backend of sparse latent attention takes (vLLM 0.32, `FlashMLASparseBackend`)."""


def restore_latent_settings(vllm_config: Any, arguments: dict[str, Any]) -> None:
    """Put back what the CPU platform takes from a model with sparse latent attention.

    Where the CPU has no AMX, vLLM 0.32 gives such models blocks of 16 tokens and prefills
    whole prompts without a prefix cache (`CpuPlatform.check_and_update_config`). Its kernels
    need that; an engine that only schedules does not. Other models are left as they are, and so
    is the number of tokens in a step where none is given.

    Args:
        vllm_config: The engine's configuration, before the engine is made.
        arguments: The engine arguments from which it was made.
    """
    if not hasattr(vllm_config.model_config.hf_text_config, "index_topk"):
        return
    vllm_config.cache_config.block_size = arguments.get("block_size", SPARSE_BLOCK_TOKENS)
    vllm_config.cache_config.enable_prefix_caching = arguments.get("enable_prefix_caching", True)
    vllm_config.scheduler_config.enable_chunked_prefill = arguments.get("enable_chunked_prefill", True)
    if tokens := arguments.get("max_num_batched_tokens"):
        vllm_config.scheduler_config.max_num_batched_tokens = tokens
