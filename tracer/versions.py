"""What only some engines have, asked of the engine at hand and never of its version.

What all of them must have are the anchors (`anchors.py`); an optional anchor is looked up here. Two
fields of vLLM's configuration that differ are read in `inventory/from_vllm.py`, which may not
import this layer. `docs/versions.md` says which minor of vLLM has what.
"""

from __future__ import annotations

import dis
import importlib
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

_CORE = "vllm.v1.core"
_INTERFACE = "vllm.v1.kv_cache_interface"
_MANAGERS = f"{_CORE}.single_type_kv_cache_manager"


def method_if_any(owner: Any, name: str) -> Any:
    """Return the method of an optional anchor, or None where this engine lacks it."""
    return getattr(owner, name, None)


def takes(function: Callable[..., Any], parameter: str) -> bool:
    """Say whether ``function`` can be given ``parameter`` by name."""
    parameters = inspect.signature(function).parameters.values()
    return any(p.name == parameter or p.kind is p.VAR_KEYWORD for p in parameters)


def encoder_entry_embeds(scheduler: Any) -> dict[str, int]:
    """Return the rows of each entry of the scheduler's encoder cache, by its identity.

    From vLLM 0.31 on the cache keeps them; before, those of an entry in use are told by the requests that use it.
    """
    cache = scheduler.encoder_cache_manager
    known: dict[str, int] | None = getattr(cache, "num_embeds_by_hash", None)
    if known is not None:
        return known
    found = dict(cache.freeable)
    for identity, users in cache.cached.items():
        for request in (scheduler.requests[user] for user in users if user in scheduler.requests):
            places = [f.mm_position for f in request.mm_features if f.identifier == identity]
            found.update((identity, place.get_num_embeds()) for place in places)
    return found


def receiver_cache_class() -> str:
    """Return the name of the class that keeps processed media in an engine core; vLLM 0.31 renamed it."""
    older, newer = "MultiModalReceiverCache", "LruKeyReplicatedReceiverCache"
    return older if hasattr(importlib.import_module("vllm.multimodal.cache"), older) else newer


class Read(NamedTuple):
    """Attributes that vstate reads from the objects of one class of vLLM."""

    module: str
    owner: str
    names: tuple[str, ...]


READS: tuple[Read, ...] = (
    Read(f"{_CORE}.block_pool", "BlockPool", ("blocks", "num_gpu_blocks", "hash_block_size", "enable_caching")),
    Read(f"{_CORE}.block_pool", "BlockPool", ("free_block_queue", "cached_block_hash_to_block")),
    Read(f"{_CORE}.block_pool", "BlockHashToBlockMap", ("_cache",)),
    Read(f"{_CORE}.kv_cache_utils", "FreeKVCacheBlockQueue", ("num_free_blocks",)),
    Read(f"{_CORE}.kv_cache_utils", "KVCacheBlock", ("block_id", "ref_cnt", "is_null", "pool")),
    Read(f"{_CORE}.kv_cache_utils", "KVCacheBlock", ("block_hash", "block_hash_num_tokens")),
    Read(f"{_CORE}.kv_cache_manager", "KVCacheManager", ("coordinator", "block_pool", "enable_caching")),
    Read(f"{_CORE}.kv_cache_manager", "KVCacheManager", ("max_model_len", "watermark_blocks", "empty_kv_cache_blocks")),
    Read(f"{_CORE}.kv_cache_coordinator", "KVCacheCoordinator", ("single_type_managers", "eagle_group_ids")),
    Read(f"{_CORE}.kv_cache_coordinator", "KVCacheCoordinator", ("enable_partial_hash_hits", "retention_interval")),
    Read(_MANAGERS, "SingleTypeKVCacheManager", ("kv_cache_group_id", "kv_cache_spec", "block_pool", "block_size")),
    Read(_MANAGERS, "SingleTypeKVCacheManager", ("req_to_blocks", "supports_fine_grained_hash_lookup")),
    Read(_MANAGERS, "SingleTypeKVCacheManager", ("max_admission_blocks_per_request",)),
    Read(_MANAGERS, "SingleTypeKVCacheManager", ("_max_admission_blocks_per_request",)),
    Read(_MANAGERS, "SlidingWindowManager", ("sliding_window", "extra_retained_tokens")),
    Read(f"{_CORE}.sched.scheduler", "Scheduler", ("requests", "deferred_frees", "encoder_cache_manager")),
    Read(f"{_CORE}.sched.scheduler", "Scheduler", ("block_size", "num_lookahead_tokens", "scheduler_reserve_full_isl")),
    Read(f"{_CORE}.encoder_cache_manager", "EncoderCacheManager", ("num_free_slots", "freeable", "num_embeds_by_hash")),
    Read(_INTERFACE, "KVCacheTensor", ("size", "host_resident")),
    Read(_INTERFACE, "KVCacheSpec", ("block_size", "page_size_bytes", "prefix_cacheable")),
    Read(_INTERFACE, "AttentionSpec", ("unpadded_page_size_bytes",)),
    Read(_INTERFACE, "MambaSpec", ("shapes", "dtypes", "mamba_type", "mamba_cache_mode")),
    Read(_INTERFACE, "MambaSpec", ("num_speculative_blocks", "num_prefill_checkpoint_blocks")),
    Read("vllm.config", "VllmConfig", ("max_in_flight_tokens",)),
    Read("vllm.v1.engine", "EngineCoreRequest", ("external_req_id",)),
)
"""For the table of minors; a required one that is absent keeps tracing off when it is read."""


def reads_of_this_engine() -> dict[str, bool]:
    """Say of each attribute in `READS` whether the installed vLLM has it."""
    found = {}
    for module, owner, names in READS:
        cls = getattr(importlib.import_module(module), owner, None)
        for name in names:
            found[f"{owner}.{name}"] = cls is not None and _has(cls, name)
    return found


def _has(cls: Any, name: str) -> bool:
    """Say whether instances of ``cls`` have ``name``: declared, or set when they are made."""
    declared = (base.__dict__.get("__annotations__", {}) for base in cls.__mro__)
    if hasattr(cls, name) or any(name in annotations for annotations in declared):
        return True
    code = getattr(cls.__init__, "__code__", None)
    return code is not None and any(
        instruction.opname == "STORE_ATTR" and instruction.argval == name for instruction in dis.get_instructions(code)
    )
