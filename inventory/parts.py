"""The parts of a loaded model that lie outside the block pools: weights, encoder, projector, draft.

A model is taken apart when it is built and before its weights are processed: afterwards a
platform may have packed them into copies that no parameter shows (vLLM on a CPU does).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vstate.inventory.outside import weight_component
from vstate.inventory.tensors import shape_bytes, storage_bytes
from vstate.schemas.component import StateComponent
from vstate.schemas.vocabulary import Owner

BUILT = "vstate_built"
"""Attribute of a model that holds what was seen when it was built."""


@dataclass(frozen=True)
class ModulePart:
    """Weights that one module holds itself, not those of its children.

    Attributes:
        module: The module's identity, so that modules a draft shares are told from its own.
        planned: Bytes by shape and type.
        measured: Bytes of the storages; 0 on the meta device.
    """

    module: int
    planned: int
    measured: int


@dataclass(frozen=True)
class BuiltModel:
    """A model as it was built: its modules by name. A weight that two modules share is the first one's."""

    modules: dict[str, ModulePart] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """Weights of one part of the deployment, in bytes."""

    component: StateComponent
    measured: int


def built_model(model: Any) -> BuiltModel:
    """Take a model apart that was just built."""
    seen: set[int] = set()
    modules = {}
    for name, module in model.named_modules():
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        tensors = [tensor for tensor in own if id(tensor) not in seen]
        seen.update(map(id, tensors))
        modules[name] = ModulePart(id(module), shape_bytes(tensors), storage_bytes(tensors))
    return BuiltModel(modules)


def weight_parts(target: Any, draft: Any = None) -> list[Part]:
    """Return the weights of a loaded model by part, those built for it alone.

    Args:
        target: The model, which was taken apart when it was built; one that was not has no parts.
        draft: The draft's model, or None. What it shares with the target (its embeddings and its
            head, usually) is the target's.
    """
    parts: dict[tuple[Owner, str], list[ModulePart]] = {}
    built: BuiltModel | None = getattr(target, BUILT, None)
    if built is not None:
        place = encoder_places(target)
        for name, module in built.modules.items():
            parts.setdefault(place(name), []).append(module)
    drafted: BuiltModel | None = getattr(draft, BUILT, None)
    if drafted is not None:
        kept = {id(module) for module in draft.modules()} - {id(module) for module in target.modules()}
        own = [module for module in drafted.modules.values() if module.module in kept]
        parts[(Owner.DRAFT, "")] = own
    return [
        Part(weight_component(owner, part, sum(m.planned for m in modules)), sum(m.measured for m in modules))
        for (owner, part), modules in parts.items()
        if sum(m.planned for m in modules)
    ]


def encoder_places(model: Any) -> Any:
    """Return a function from a module's name to the part it belongs to.

    vLLM's multimodal models mark their towers when they are built
    (``SupportsMultiModal._mark_tower_model``); the projector is what their module mapping calls
    the connector, and part of the tower where a model has no such mapping.
    """
    towers = tuple(getattr(model, "_tower_model_names", ()) or ())
    connectors: tuple[str, ...] = ()
    if towers and callable(getattr(model, "get_mm_mapping", None)):
        mapping = model.get_mm_mapping()
        connectors = tuple(name.rstrip(".") for name in mapping.connector if name)
        towers += tuple(name.rstrip(".") for name in mapping.tower_model if name)
    towers += _unmarked_towers(model, towers)

    def place(name: str) -> tuple[Owner, str]:
        if _under(name, connectors):
            return Owner.ENCODER, "projector"
        if _under(name, towers):
            return Owner.ENCODER, "tower"
        return Owner.TARGET, ""

    return place


def _unmarked_towers(model: Any, marked: tuple[str, ...]) -> tuple[str, ...]:
    """Return the towers of a model that marks several, one after another: vLLM keeps its last mark only.

    They are the children that neither are marked as the language model nor hold rows of a vocabulary.
    """
    language = tuple(getattr(model, "_language_model_names", ()) or ())
    if not marked or not language or any("." in name for name in language):
        return ()
    return tuple(
        name
        for name, child in model.named_children()
        if name not in (*marked, *language) and not hasattr(child, "org_vocab_size")
    )


def _under(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)
