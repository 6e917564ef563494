"""Reads what state an engine keeps from vLLM's own specs and layers (vLLM 0.32).

The only module outside `tracer` and `admission` that knows vLLM's classes. vLLM is
imported when a function is called, never when this module is.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any

from vstate.inventory.components import Facts, LayerState, components
from vstate.schemas.manifests import EngineSettings, GroupManifest, PoolManifest
from vstate.schemas.vocabulary import Owner, StateClass

RINGS = {"CircularBufferSpec", "KpoolTailSpec"}
"""Kinds of spec for a ring of raw keys that wait to be compressed; the second is of vLLM 0.30 and 0.31."""


def pools_from_scheduler(scheduler: Any) -> list[Any]:
    """Return the engine's distinct block pools; a pool's index is its number everywhere."""
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    return list(dict.fromkeys([scheduler.kv_cache_manager.block_pool, *(m.block_pool for m in managers)]))


def is_host_resident(tensor: Any) -> bool:
    """Say whether a ``KVCacheTensor`` lies in host memory; where vLLM does not ask that, none does."""
    return bool(getattr(tensor, "host_resident", False))


def admission_cap_blocks(manager: Any) -> int:
    """Return the most blocks vLLM's gate charges a request for, 0 for no limit.

    Raises:
        AttributeError: The manager has the attribute by neither of its names.
    """
    public = "max_admission_blocks_per_request"
    return int(getattr(manager, public if hasattr(manager, public) else f"_{public}") or 0)


def attention_backends(layers: dict[str, Any]) -> dict[str, str]:
    """Return the name of each layer's attention backend, of those layers that have one."""
    found = {}
    for name, layer in layers.items():
        backend = layer.get_attn_backend() if hasattr(layer, "get_attn_backend") else None
        if backend is not None:
            found[name] = str(backend.get_name() if hasattr(backend, "get_name") else backend.__name__)
    return found


def platform_name() -> str:
    """Return the platform that vLLM resolved, with the instructions a CPU's kernels are chosen by."""
    import torch
    from vllm.platforms import current_platform

    name = str(current_platform.device_type)
    if name != "cpu":
        return name
    flags = {
        "avx512_bf16": "_is_avx512_bf16_supported",
        "amx_tile": "_is_amx_tile_supported",
    }
    have = [flag for flag, asks in flags.items() if getattr(torch.cpu, asks, lambda: False)()]
    return "-".join([name, *have])


def pool_manifests(scheduler: Any) -> tuple[PoolManifest, ...]:
    """Describe the pools.

    All groups of a pool alias one allocation, whose size every ``KVCacheTensor`` repeats
    (``kv_cache_interface.KVCacheTensor.size``): it is taken once, never summed.
    """
    config = scheduler.kv_cache_config
    manifests = []
    for index, pool in enumerate(pools_from_scheduler(scheduler)):
        host = index > 0
        sizes = [tensor.size for tensor in config.kv_cache_tensors if is_host_resident(tensor) == host]
        total = max(sizes, default=0)
        manifests.append(
            PoolManifest(
                pool=index,
                num_blocks=pool.num_gpu_blocks,
                block_bytes=total // pool.num_gpu_blocks,
                total_bytes=total,
                hash_block_tokens=pool.hash_block_size,
                caching=pool.enable_caching,
            )
        )
    return tuple(manifests)


def group_manifests(scheduler: Any, layers: dict[str, Any]) -> tuple[GroupManifest, ...]:
    """Describe the KV-cache groups.

    Args:
        scheduler: vLLM's scheduler.
        layers: The layers by name where the model lives in this process
            (``static_forward_context``), else empty: then the spec of each layer speaks for it.
    """
    coordinator = scheduler.kv_cache_manager.coordinator
    pools = pools_from_scheduler(scheduler)
    block_bytes = [manifest.block_bytes for manifest in pool_manifests(scheduler)]
    pages = layer_pages(scheduler.kv_cache_config)
    manifests = []
    for index, (group, manager) in enumerate(
        zip(scheduler.kv_cache_config.kv_cache_groups, coordinator.single_type_managers, strict=True)
    ):
        pool = pools.index(manager.block_pool)
        states = group_states(group, scheduler.vllm_config, layers, pages)
        spec = manager.kv_cache_spec
        facts = Facts(index, pool, manager.block_size, scheduler.block_size, block_bytes[pool])
        manifests.append(
            GroupManifest(
                group=index,
                pool=pool,
                spec_kind=type(spec).__name__,
                manager=type(manager).__name__,
                layers=tuple(group.layer_names),
                block_tokens=manager.block_size,
                window_tokens=getattr(manager, "sliding_window", 0) or 0,
                retained_tokens=getattr(manager, "extra_retained_tokens", 0),
                state_mode=getattr(spec, "mamba_cache_mode", ""),
                speculative_blocks=getattr(spec, "num_speculative_blocks", 0),
                checkpoint_blocks=getattr(spec, "num_prefill_checkpoint_blocks", 0),
                checkpoint_alignment_tokens=getattr(spec, "prefill_checkpoint_alignment", 0) or 0,
                attention_chunk_tokens=getattr(manager, "attention_chunk_size", 0),
                decode_window_tokens=getattr(manager, "rswa_window", 0),
                encoder_tokens=encoder_tokens(manager, scheduler.vllm_config),
                fixed_blocks=fixed_blocks(manager),
                admission_cap_blocks=admission_cap_blocks(manager),
                draft=index in coordinator.eagle_group_ids,
                prefix_cacheable=bool(group.kv_cache_spec.prefix_cacheable),
                partial_hits=bool(coordinator.enable_partial_hash_hits) and manager.supports_fine_grained_hash_lookup,
                hash_block_tokens=manager.block_pool.hash_block_size,
                components=components(states, facts),
            )
        )
    return tuple(manifests)


def encoder_tokens(manager: Any, vllm_config: Any) -> int:
    """Return the most encoder tokens a request's cross attention can hold, 0 for a manager of other state."""
    crosses = type(manager).__name__ == "CrossAttentionManager"
    return int(vllm_config.scheduler_config.max_num_encoder_input_tokens) if crosses else 0


def fixed_blocks(manager: Any) -> int:
    """Return the blocks that each request holds whatever its length: one of a ring, a hot region; 0 for others."""
    if type(manager).__name__ == "CircularBufferManager":
        return 1
    return int(getattr(manager, "blocks_per_request", 0))


def layer_pages(kv_cache_config: Any) -> dict[str, int]:
    """Return the bytes of one page of each layer, from where its tensors lie.

    A layer's pages are either contiguous, one block after the other, or lie beside those of the other layers of
    their block (``kv_cache_interface.KVCacheTensor``, vLLM 0.32): the smaller of the two strides is a page. Before 0.32
    tensors did not say so, and all layers of a group had one size.
    """
    return {
        layer: min(tensor.layer_stride, tensor.block_stride)
        for tensor in kv_cache_config.kv_cache_tensors
        if hasattr(tensor, "layer_stride")
        for layer in tensor.layers
    }


def group_states(group: Any, vllm_config: Any, layers: dict[str, Any], pages: dict[str, int]) -> list[LayerState]:
    """Say what state the layers of a group keep in one block, and whose it is."""
    states = []
    for name in group.layer_names:
        page = pages.get(name)
        spec = layer_spec(name, group.kv_cache_spec, vllm_config, layers, page)
        owner = layer_owner(name, vllm_config)
        states += [state._replace(owner=owner) for state in layer_states(name, spec, layers, page)]
    return states


def layer_spec(name: str, group_spec: Any, vllm_config: Any, layers: dict[str, Any], page: int | None) -> Any:
    """Return the spec of a layer, which has pages of ``page`` bytes.

    A worker's group lists the specs of its layers. The scheduler keeps one for a group even where its layers differ
    in size, as the index and the latent cache of sparse attention do (``generate_scheduler_kv_cache_config``): then
    the layer is asked, where it lives in this process, and else the group's spec has to do.
    """
    from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs

    if isinstance(group_spec, UniformTypeKVCacheSpecs):
        return group_spec.kv_cache_specs[name]
    if page in (None, group_spec.page_size_bytes) or name not in layers:
        return group_spec
    own = layers[name].get_kv_cache_spec(vllm_config)
    return group_spec if own is None else own


def layer_owner(name: str, vllm_config: Any) -> Owner:
    """Say whose layer it is; a draft's layers may share a group with the target's.

    An external draft is built under ``draft_model.``, most native ones under ``mtp.``; the others
    (EAGLE, NEXTN) count their layers on from the target's last.
    """
    if vllm_config.speculative_config is None:
        return Owner.TARGET
    number = re.search(r"layers\.(\d+)\.", name)
    own_layers = vllm_config.model_config.hf_text_config.num_hidden_layers
    beyond = number is not None and int(number.group(1)) >= own_layers
    named = name.startswith("draft_model.") or re.search(r"(^|\.)mtp\.", name) is not None
    return Owner.DRAFT if named or beyond else Owner.TARGET


def layer_states(name: str, spec: Any, layers: dict[str, Any], page: int | None = None) -> list[LayerState]:
    """Say what state the layer ``name`` with its ``spec`` keeps in one block of its group.

    Where ``page`` is given and is not what the spec says, the spec is that of another layer: all of it counts as state.
    """
    from vllm.v1.kv_cache_interface import (
        AttentionSpec,
        CrossAttentionSpec,
        MambaSpec,
        MLAAttentionSpec,
        SlidingWindowMLASpec,
    )

    layer = layers.get(name)
    if isinstance(spec, MambaSpec):
        return _slot_states(name, spec)
    kinds = {kind.__name__ for kind in type(spec).__mro__}
    if not isinstance(spec, AttentionSpec) or "HiddenStateCacheSpec" in kinds:
        return [LayerState(name, Owner.TARGET, StateClass.WORKSPACE, "", spec.page_size_bytes, spec.page_size_bytes)]
    # By name, because not every minor of vLLM has each kind.
    if _is_convolution(layer) or kinds & RINGS:
        state_class = StateClass.CONV
    elif "indexer" in type(layer).__name__.lower() or ".indexer." in name:
        state_class = StateClass.SPARSE_INDEX
    elif isinstance(spec, CrossAttentionSpec):
        state_class = StateClass.CROSS_KV
    elif isinstance(spec, MLAAttentionSpec | SlidingWindowMLASpec):
        state_class = StateClass.LATENT_KV
    elif "ChunkedLocalAttentionSpec" in kinds or window_tokens(spec, layer):
        state_class = StateClass.SLIDING_KV
    else:
        state_class = StateClass.FULL_KV
    sizes = (spec.unpadded_page_size_bytes, spec.page_size_bytes)
    if page is not None and page != spec.page_size_bytes:
        sizes = (page, page)
    return [LayerState(name, Owner.TARGET, state_class, _dtype_name(spec.dtype), *sizes)]


def window_tokens(spec: Any, layer: Any) -> int:
    """Return the sliding window of a layer, 0 for none.

    The layer tells where it is here: with the hybrid manager disabled the spec of a group is that of full attention
    and carries the window of some of its layers (``FullAttentionSpec.merge``).
    """
    if hasattr(layer, "sliding_window"):
        return int(layer.sliding_window or 0)
    return int(getattr(spec, "sliding_window", None) or 0)


def _is_convolution(layer: Any) -> bool:
    """A convolution whose state an engine keeps under an attention spec (vllm#54703)."""
    return "conv" in type(layer).__name__.lower()


def _slot_states(name: str, spec: Any) -> list[LayerState]:
    """Split a whole-state page into its convolution and its recurrent part.

    ``MambaSpec.shapes`` lists the convolution tails first and the recurrent state last; a
    short convolution has only tails, a linear attention only the state.
    """
    from vllm.utils.torch_utils import get_dtype_size

    kind = getattr(spec.mamba_type, "name", str(spec.mamba_type)).lower()
    sizes = [prod(shape) * get_dtype_size(dtype) for shape, dtype in zip(spec.shapes, spec.dtypes, strict=True)]
    names = [_dtype_name(dtype) for dtype in spec.dtypes]
    tails = len(sizes) if "short_conv" in kind else len(sizes) - 1
    states = []
    if tails:
        dtype = "+".join(dict.fromkeys(names[:tails]))
        states.append(LayerState(name, Owner.TARGET, StateClass.CONV, dtype, sum(sizes[:tails]), spec.page_size_bytes))
    if tails < len(sizes):
        states.append(LayerState(name, Owner.TARGET, StateClass.RECURRENT, names[-1], sizes[-1], spec.page_size_bytes))
    return states


def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def engine_settings(vllm_config: Any, scheduler: Any) -> EngineSettings:
    """Collect the settings that accounting depends on."""
    manager = scheduler.kv_cache_manager
    model, schedule = vllm_config.model_config, vllm_config.scheduler_config
    return EngineSettings(
        model=str(model.served_model_name or model.model),
        architecture=str(next(iter(model.architectures), "")),
        dtype=_dtype_name(model.dtype),
        cache_dtype=str(vllm_config.cache_config.cache_dtype),
        max_model_len_tokens=model.max_model_len,
        max_batched_tokens=schedule.max_num_batched_tokens,
        max_in_flight_tokens=vllm_config.max_in_flight_tokens,
        lookahead_tokens=scheduler.num_lookahead_tokens,
        draft_tokens=scheduler.num_spec_tokens,
        max_num_seqs=schedule.max_num_seqs,
        scheduler_block_tokens=scheduler.block_size,
        prefix_caching=bool(manager.enable_caching),
        chunked_prefill=bool(schedule.enable_chunked_prefill),
        reserve_full_prompt=bool(scheduler.scheduler_reserve_full_isl),
        watermark_blocks=manager.watermark_blocks,
        async_scheduling=bool(schedule.async_scheduling),
        policy=str(schedule.policy),
        retention_interval_tokens=manager.coordinator.retention_interval,
    )
