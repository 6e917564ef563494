"""What a worker holds: the state in its pools and beside them, planned by shapes and measured on tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vstate.inventory.components import Facts, LayerState, components
from vstate.inventory.from_vllm import (
    group_states,
    is_host_resident,
    layer_owner,
    layer_pages,
    layer_spec,
    layer_states,
)
from vstate.inventory.outside import encoder_component
from vstate.inventory.parts import weight_parts
from vstate.inventory.tensors import storage_bytes, view_bytes
from vstate.schemas.component import StateComponent
from vstate.schemas.vocabulary import Owner, StateClass


@dataclass(frozen=True)
class WorkerComponent:
    """A component in one worker, in bytes.

    Attributes:
        component: What it is.
        planned: Bytes that follow from specs and shapes.
        measured: Bytes of real tensors; None where there is no tensor yet, or none at all.
    """

    component: StateComponent
    planned: int
    measured: int | None


def worker_components(vllm_config: Any, runner: Any, kv_cache_config: Any) -> list[WorkerComponent]:
    """Return all that a worker holds once its pools are allocated.

    Args:
        vllm_config: The engine's configuration.
        runner: The worker's model runner, with its ``model``, ``drafter`` and ``mm_budget``.
        kv_cache_config: What the worker allocated its pools by.
    """
    layers = dict(vllm_config.compilation_config.static_forward_context)
    draft = getattr(getattr(runner, "drafter", None), "model", None)
    found = [
        WorkerComponent(part.component, part.component.engine_bytes, part.measured or None)
        for part in weight_parts(runner.model, draft)
    ]
    found += pool_components(vllm_config, kv_cache_config, layers)
    budget = getattr(runner, "mm_budget", None)
    if output := encoder_output(vllm_config, budget.encoder_cache_size if budget else 0):
        found.append(WorkerComponent(output, output.engine_bytes, None))
    return found


def encoder_output(vllm_config: Any, cache_embeds: int) -> StateComponent | None:
    """Return the encoder cache with room for ``cache_embeds`` rows, None where there is none.

    One row is what an encoder hands to the language model for one position
    (``ModelConfig.get_inputs_embeds_size``); the scheduler's budget counts in rows.
    """
    model = vllm_config.model_config
    if not cache_embeds:
        return None
    row_bytes = model.get_inputs_embeds_size() * model.dtype.itemsize
    return encoder_component(row_bytes, cache_embeds, str(model.dtype).removeprefix("torch."))


def pool_components(vllm_config: Any, kv_cache_config: Any, layers: dict[str, Any]) -> list[WorkerComponent]:
    """Return the components of all groups with the bytes of the tensors that the layers were given."""
    hosts = {n: is_host_resident(t) for t in kv_cache_config.kv_cache_tensors for n in t.layers}
    pools: dict[bool, list[Any]] = {}
    for name, host in hosts.items():
        pools.setdefault(host, []).extend(layer_tensors(layers.get(name)))
    real_pools = {host: storage_bytes(tensors) for host, tensors in pools.items()}
    pages = layer_pages(kv_cache_config)
    found = []
    for index, group in enumerate(kv_cache_config.kv_cache_groups):
        host = hosts.get(group.layer_names[0], False)
        blocks, facts = _facts(index, group, kv_cache_config, host)
        real: dict[tuple[Owner, StateClass], list[Any]] = {}
        for name in group.layer_names:
            spec = layer_spec(name, group.kv_cache_spec, vllm_config, layers, pages.get(name))
            states = layer_states(name, spec, layers, pages.get(name))
            for state, own in tensors_by_state(states, layer_tensors(layers.get(name))):
                real.setdefault((layer_owner(name, vllm_config), state.state_class), []).extend(own)
        shown = {key: view_bytes(tensors) for key, tensors in real.items()}
        shown_bytes = sum(shown.values())
        for component in components(group_states(group, vllm_config, layers, pages), facts):
            if component.state_class is StateClass.PADDING:
                measured = real_pools[host] - shown_bytes
            else:
                measured = shown.get((component.owner, component.state_class), 0)
            planned = component.charged_bytes_per_block * blocks
            found.append(WorkerComponent(component, planned, measured if shown_bytes else None))
    return found


def _facts(index: int, group: Any, kv_cache_config: Any, host: bool) -> tuple[int, Facts]:
    """Return the blocks of a group's pool, and what its components have in common."""
    blocks = kv_cache_config.hisparse_host_num_blocks if host else kv_cache_config.num_blocks
    total = max(t.size for t in kv_cache_config.kv_cache_tensors if is_host_resident(t) == host)
    block_tokens = group.kv_cache_spec.block_size
    boundary = getattr(kv_cache_config, "cache_hit_alignment_tokens", None) or block_tokens
    return blocks, Facts(index, int(host), block_tokens, boundary, total // blocks)


def tensors_by_state(states: list[LayerState], tensors: list[Any]) -> list[tuple[LayerState, list[Any]]]:
    """Say which of a layer's tensors hold which of its states: convolution tails first, the recurrent state last."""
    if len(states) == 1:
        return [(states[0], tensors)]
    tails, last = states
    return [(tails, tensors[:-1]), (last, tensors[-1:])]


def layer_tensors(layer: Any) -> list[Any]:
    """Return the tensors in which a layer keeps its state, none where it has none yet."""
    return _flat(getattr(layer, "kv_cache", None))


def _flat(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _flat(part)]
    return [value] if value.numel() else []
