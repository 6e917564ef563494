"""Every attribute of vLLM that is hooked or read, with the parameters it must have.

vstate never asks for a version: a fork may carry any. What counts is that these names
are there and take these parameters.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import Any

from vstate.schemas.manifests import AnchorState

_POOL = "vllm.v1.core.block_pool"
_MANAGERS = "vllm.v1.core.single_type_kv_cache_manager"
_MANAGER = "vllm.v1.core.kv_cache_manager"
_ENCODER = "vllm.v1.core.encoder_cache_manager"
_SCHEDULER = "vllm.v1.core.sched.scheduler"
_CORE = "vllm.v1.engine.core"


@dataclass(frozen=True)
class Anchor:
    """A function of vLLM that the tracer depends on.

    Attributes:
        module: Module that defines it.
        path: Class and function name in the module.
        parameters: Parameters the hook uses, in their order, ``self`` left out.
        hooked: True where a wrapper replaces it, False where its frame or result is read.
        optional: True where an engine may lack it; where it is there, its parameters must fit.
    """

    module: str
    path: str
    parameters: tuple[str, ...]
    hooked: bool = True
    optional: bool = False

    @property
    def name(self) -> str:
        """Dotted name without the package, for messages."""
        return f"{self.module.rpartition('.')[2]}.{self.path}"


ANCHORS: tuple[Anchor, ...] = (
    Anchor("vllm.config.scheduler", "SchedulerConfig.get_scheduler_cls", ()),
    Anchor(_CORE, "EngineCore.preprocess_add_request", ("request",)),
    Anchor(_CORE, "EngineCore.shutdown", ()),
    Anchor(_SCHEDULER, "Scheduler.has_requests", ()),
    Anchor(_SCHEDULER, "Scheduler.schedule", ()),
    Anchor(_SCHEDULER, "Scheduler.update_from_output", ("scheduler_output", "model_runner_output")),
    Anchor(_SCHEDULER, "Scheduler.add_request", ("request",)),
    Anchor(_SCHEDULER, "Scheduler._update_request_as_session", ("session",)),
    Anchor(_SCHEDULER, "Scheduler._get_local_prefix_cache_hit", ("request",)),
    Anchor(_SCHEDULER, "Scheduler._preempt_request", ("request",)),
    Anchor(_SCHEDULER, "Scheduler._free_request", ("request",)),
    Anchor(_SCHEDULER, "Scheduler._free_blocks", ("request",)),
    Anchor(_SCHEDULER, "Scheduler._free_cow_retained_blocks", ("blocks",)),
    Anchor(_SCHEDULER, "Scheduler._drain_deferred_frees", (), hooked=False),
    Anchor(_SCHEDULER, "Scheduler.get_request_counts", (), hooked=False),
    Anchor(_MANAGER, "KVCacheManager.allocate_slots", ("request", "num_new_tokens", "num_new_computed_tokens")),
    Anchor(_MANAGER, "KVCacheManager.pop_blocks_for_free", ("request",)),
    Anchor(_ENCODER, "EncoderCacheManager.allocate", ("request", "input_id")),
    Anchor(_ENCODER, "EncoderCacheManager.check_and_update_cache", ("request", "input_id")),
    Anchor(_ENCODER, "EncoderCacheManager.can_allocate", ("request", "input_id")),
    Anchor(_ENCODER, "EncoderCacheManager.free_encoder_input", ("request", "input_id")),
    Anchor(_ENCODER, "EncoderCacheManager.reset", ()),
    Anchor(_POOL, "BlockPool.get_new_blocks", ("num_blocks",)),
    Anchor(_POOL, "BlockPool.free_blocks", ("ordered_blocks",)),
    Anchor(_POOL, "BlockPool.touch", ("blocks",)),
    Anchor(_POOL, "BlockPool.cache_full_blocks", ("request",)),
    Anchor(_POOL, "BlockPool.cache_partial_block", ("request",)),
    Anchor(_POOL, "BlockPool._insert_block_hash", ("block_hash_with_group_id", "block", "num_tokens")),
    Anchor(_POOL, "BlockPool._remove_cached_block_hashes", ("block",)),
    Anchor(_POOL, "BlockHashToBlockMap.contain", ("key", "block_id"), hooked=False),
    Anchor(_POOL, "BlockPool.move_block_hashes", ("src_block", "dst_block")),
    Anchor(_POOL, "BlockPool.unpin_blocks", ("blocks",), optional=True),
    Anchor(_POOL, "BlockPool.reset_prefix_cache", ()),
    Anchor(_MANAGERS, "SingleTypeKVCacheManager._apply_cow", ("request_id", "block_idx", "source_block", "cow_block")),
    Anchor(
        _MANAGERS,
        "SingleTypeKVCacheManager.get_num_blocks_to_allocate",
        (
            "request_id",
            "num_tokens",
            "new_computed_blocks",
            "total_computed_tokens",
            "num_local_computed_tokens",
            "num_tokens_main_model",
            "apply_admission_cap",
        ),
        hooked=False,
    ),
    Anchor(_MANAGERS, "SingleTypeKVCacheManager.get_num_skipped_tokens", ("num_computed_tokens",), hooked=False),
    Anchor(_MANAGERS, "SingleTypeKVCacheManager.allocate_new_blocks", ("request_id",), hooked=False),
    Anchor(_MANAGERS, "SingleTypeKVCacheManager.allocate_external_computed_blocks", ("request_id",), hooked=False),
    Anchor(_MANAGERS, "SingleTypeKVCacheManager.add_local_computed_blocks", ("request_id",), hooked=False),
    Anchor(_MANAGERS, "SingleTypeKVCacheManager.free", ("request_id",), hooked=False),
    Anchor(_MANAGERS, "SingleTypeKVCacheManager._remove_blocks_in_range", ("request_id",), hooked=False),
    Anchor(_MANAGERS, "SingleTypeKVCacheManager.remove_skipped_blocks", ("request_id",), hooked=False),
    Anchor(_MANAGERS, "MambaManager.allocate_new_blocks", ("request_id",), hooked=False),
    Anchor(_MANAGERS, "MambaManager.remove_skipped_blocks", ("request_id",), hooked=False),
)
"""All anchors, in the order in which `vstate doctor` shows them."""

WRAPPER_MARK = "__vstate_original__"
"""Attribute of a vstate wrapper that holds what it wraps."""
_ENGINE_PACKAGE = "vllm"

_COORDINATOR = "vllm.v1.core.kv_cache_coordinator"
PLACES_OF_USE: dict[tuple[str, str], str] = {
    (_POOL, "BlockPool"): _COORDINATOR,
    (_MANAGER, "KVCacheManager"): _SCHEDULER,
    (_ENCODER, "EncoderCacheManager"): _SCHEDULER,
    (_SCHEDULER, "Scheduler"): _SCHEDULER,
}
"""Classes that a fork or a plugin may put another one in the place of, and the module that makes their objects.

A module that has imported a class by name goes on using it, whatever is done to the module that defines it.
"""


def check_anchor(anchor: Anchor) -> AnchorState:
    """Compare one anchor with the installed vLLM."""
    try:
        target: Any = importlib.import_module(anchor.module)
        for part in anchor.path.split("."):
            place = PLACES_OF_USE.get((anchor.module, part)) if target.__name__ == anchor.module else None
            target = getattr(importlib.import_module(place) if place else target, part)
    except (ImportError, AttributeError) as error:
        missing = isinstance(error, AttributeError) and anchor.optional
        return AnchorState(name=anchor.name, fits=missing, found=f"absent: {error}")
    function = getattr(target, WRAPPER_MARK, target)
    foreign = origin_of(function)
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError) as error:
        return AnchorState(name=anchor.name, fits=False, found=str(error), wrapped_by=foreign)
    positions = [names.index(p) if p in names else -1 for p in anchor.parameters]
    fits = -1 not in positions and positions == sorted(positions)
    return AnchorState(name=anchor.name, fits=fits, found=f"({', '.join(names)})", wrapped_by=foreign)


def origin_of(function: Any) -> str:
    """Name the module that a function was written in, where that is not one of vLLM's; else an empty string.

    `functools.wraps` copies the name of the module along with the rest; the globals stay those of the wrapper.
    """
    scope = getattr(getattr(function, "__func__", function), "__globals__", {})
    module = str(scope.get("__name__") or getattr(function, "__module__", None) or type(function).__module__)
    return "" if module.partition(".")[0] == _ENGINE_PACKAGE else module


def check_anchors() -> tuple[AnchorState, ...]:
    """Compare all anchors with the installed vLLM."""
    return tuple(check_anchor(anchor) for anchor in ANCHORS)


def replaced_classes() -> tuple[str, ...]:
    """Say which classes that vstate hooks have another one in their place, and what that one overrides."""
    told = []
    for (module, name), place in PLACES_OF_USE.items():
        used = getattr(importlib.import_module(place), name, None)
        if isinstance(used, type) and (used.__module__, used.__qualname__) != (module, name):
            methods = (a.path.rpartition(".")[2] for a in ANCHORS if a.path.startswith(f"{name}."))
            own = [method for method in methods if method in vars(used)]
            overrides = f", which overrides {', '.join(own)}" if own else ""
            told.append(f"{name} is {used.__module__}.{used.__qualname__}{overrides}")
    return tuple(told)


def wrappers_on(owner: Any) -> tuple[str, ...]:
    """Say which hooked methods of an object somebody else has replaced on the object itself.

    Only for objects that vstate has no hooks on, and that no engine is to run fast on.
    """
    classes = {cls.__qualname__ for cls in type(owner).__mro__}
    told = []
    for anchor in ANCHORS:
        cls, _, method = anchor.path.partition(".")
        if anchor.hooked and cls in classes and method in vars(owner):
            found = vars(owner)[method]
            told.append(f"{anchor.name} by {origin_of(found) or _ENGINE_PACKAGE} on the object")
    return tuple(told)


def misfits(states: tuple[AnchorState, ...]) -> list[str]:
    """One line for each anchor that does not fit: what was found, what it lacks, and who wrote it."""
    wanted = {anchor.name: anchor.parameters for anchor in ANCHORS}
    told = []
    for state in states:
        if state.fits:
            continue
        found = state.found.strip("()").split(", ")
        lacking = [name for name in wanted.get(state.name, ()) if name not in found]
        lacks = ""
        if state.found.startswith("("):
            lacks = f" lacks {', '.join(lacking)}" if lacking else " has them in another order"
        told.append(f"{state.name} {state.found}{lacks}" + (f", from {state.wrapped_by}" if state.wrapped_by else ""))
    return told
