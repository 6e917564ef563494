"""What one rank computes and reads in a step, from the shapes of a model on the meta device.

Formulas: two operations per weight and token for matrices; for attention four per head, head dimension and token of
context (scores and values). A step reads each weight that it needs once, the KV of each request's context once per
step, and a recurrent state twice (read and written). Of E experts of which each token takes k, T tokens are expected
to reach E x (1 - (1 - k/E)^T) if they choose evenly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from vstate.inventory.from_vllm import layer_states, window_tokens
from vstate.inventory.tensors import shape_bytes

Ints = npt.NDArray[np.int64]


class Cost(BaseModel):
    """A cost: part of a run's manifest, so that anyone can see what its time was made of."""

    model_config = ConfigDict(frozen=True)


class AttentionCost(Cost):
    """Layers with one window.

    Attributes:
        window_tokens: What a token looks back at; 0 for all before it.
        context_bytes: Bytes read per token of context.
        context_flops: Operations per scheduled token and token of context.
    """

    window_tokens: int
    context_bytes: float
    context_flops: float


class ExpertCost(Cost):
    """Layers with one number of experts.

    Attributes:
        experts: Experts of a layer on this rank.
        chosen: Experts that a token takes.
        weights: Weights of all experts of all these layers.
        weight_bytes: Their bytes.
    """

    experts: int
    chosen: int
    weights: int
    weight_bytes: int

    def reached(self, tokens: int) -> float:
        """Share of the experts that so many tokens are expected to reach."""
        return float(1 - (1 - min(1.0, self.chosen / self.experts)) ** tokens)


class StepCosts(Cost):
    """The costs of a model on one rank.

    Attributes:
        weights: Weights that every token passes.
        weight_bytes: Their bytes.
        experts: Those that only some tokens pass.
        attention: Attention by window.
        state_bytes: Recurrent and convolution state of a request.
        encoder_weights: Weights of towers and projectors.
        encoder_bytes: Their bytes.
    """

    weights: int
    weight_bytes: int
    experts: tuple[ExpertCost, ...]
    attention: tuple[AttentionCost, ...]
    state_bytes: int
    encoder_weights: int
    encoder_bytes: int

    def of_step(self, computed: Ints, scheduled: Ints, encoder_embeds: int) -> tuple[float, float]:
        """Return operations and bytes of a step.

        Args:
            computed: Tokens of each scheduled request whose state exists.
            scheduled: Tokens that each computes now.
            encoder_embeds: Rows that the encoder makes; each is taken for one token of its tower.
        """
        tokens = int(scheduled.sum())
        flops, read = 2.0 * self.weights * tokens, float(self.weight_bytes)
        for expert in self.experts:
            flops += 2.0 * expert.weights * expert.chosen / expert.experts * tokens
            read += expert.weight_bytes * expert.reached(tokens)
        after = computed + scheduled
        # Each of n tokens after c others looks at c + 1 .. c + n, on average at the middle.
        middle = computed + (scheduled + 1) / 2
        for cost in self.attention:
            seen, kept = middle, after
            if cost.window_tokens:
                seen = np.minimum(middle, cost.window_tokens)
                kept = np.minimum(after, cost.window_tokens + scheduled)
            flops += cost.context_flops * float((seen * scheduled).sum())
            read += cost.context_bytes * float(kept.sum())
        read += 2.0 * self.state_bytes * len(scheduled)
        if encoder_embeds:
            flops += 2.0 * self.encoder_weights * encoder_embeds
            read += self.encoder_bytes
        return flops, read


def step_costs(vllm_config: Any, target: Any, draft: Any | None, specs: dict[str, Any]) -> StepCosts:
    """Take the costs of a model and its draft.

    Args:
        vllm_config: vLLM's configuration; its layers have been built.
        target: The model on the meta device.
        draft: Its draft, if that is a model.
        specs: The spec of each layer with a cache.
    """
    layers = vllm_config.compilation_config.static_forward_context
    encoder = _encoder_parameters(target)
    lookups = {id(p) for model in (target, draft) if model is not None for p in _lookup_parameters(model)}
    shared: dict[int, Any] = {}
    experts: dict[int, Any] = {}
    for model in (target, draft):
        for module in model.modules() if model is not None else ():
            count = _expert_count(module)
            for parameter in module.parameters(recurse=False):
                if id(parameter) in encoder or id(parameter) in lookups:
                    continue
                routed = count and parameter.dim() == 3 and parameter.shape[0] == count  # noqa: PLR2004
                (experts if routed else shared)[id(parameter)] = parameter
    return StepCosts(
        weights=_weights(shared.values()),
        weight_bytes=shape_bytes(shared.values()),
        experts=_expert_costs(vllm_config, experts.values()),
        attention=_attention_costs(layers, specs),
        state_bytes=_state_bytes(layers, specs),
        encoder_weights=_weights(encoder.values()),
        encoder_bytes=shape_bytes(encoder.values()),
    )


def _weights(parameters: Any) -> int:
    return sum(p.numel() for p in parameters)


def _encoder_parameters(model: Any) -> dict[int, Any]:
    """Parameters outside the language model, where a model says which that is."""
    if not hasattr(model, "get_language_model"):
        return {}
    language = {id(p) for p in model.get_language_model().parameters()}
    return {id(p): p for p in model.parameters() if id(p) not in language}


def _lookup_parameters(model: Any) -> list[Any]:
    """Embedding tables, of which a token reads one row; an output head of the same class is a matrix."""
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

    tables = [m for m in model.modules() if isinstance(m, VocabParallelEmbedding) and not isinstance(m, ParallelLMHead)]
    return [p for table in tables for p in table.parameters(recurse=False)]


def _expert_count(module: Any) -> int:
    return int(getattr(module, "local_num_experts", 0) or 0)


def _expert_costs(vllm_config: Any, parameters: Any) -> tuple[ExpertCost, ...]:
    by_count: dict[int, list[Any]] = {}
    for parameter in parameters:
        by_count.setdefault(int(parameter.shape[0]), []).append(parameter)
    chosen = _chosen_experts(vllm_config.model_config.hf_text_config)
    return tuple(
        ExpertCost(experts=count, chosen=min(count, chosen), weights=_weights(found), weight_bytes=shape_bytes(found))
        for count, found in sorted(by_count.items())
    )


def _chosen_experts(config: Any) -> int:
    """Experts per token, by whichever of its names the configuration has it."""
    for name in ("num_experts_per_tok", "moe_top_k", "num_experts_per_token", "moe_topk"):
        if value := getattr(config, name, None):
            return int(value)
    return 1


def _attention_costs(layers: dict[str, Any], specs: dict[str, Any]) -> tuple[AttentionCost, ...]:
    from vllm.v1.kv_cache_interface import AttentionSpec

    found: dict[int, list[float]] = {}
    for name, spec in specs.items():
        if not isinstance(spec, AttentionSpec):
            continue
        layer = layers.get(name)
        heads, size = getattr(layer, "num_heads", 0) or 0, getattr(layer, "head_size", 0) or 0
        total = found.setdefault(window_tokens(spec, layer), [0.0, 0.0])
        total[0] += _block_bytes(name, spec, layers) / spec.block_size
        total[1] += 4.0 * heads * size
    return tuple(
        AttentionCost(window_tokens=window, context_bytes=found[window][0], context_flops=found[window][1])
        for window in sorted(found)
    )


def _state_bytes(layers: dict[str, Any], specs: dict[str, Any]) -> int:
    from vllm.v1.kv_cache_interface import MambaSpec

    return sum(_block_bytes(name, spec, layers) for name, spec in specs.items() if isinstance(spec, MambaSpec))


def _block_bytes(name: str, spec: Any, layers: dict[str, Any]) -> int:
    """Unpadded bytes of one block of a layer."""
    return sum(state.block_bytes for state in layer_states(name, spec, layers))
