"""Adds what drafts keep: models of their own and heads on a target. Native drafts are their family's.

Sources: vLLM 0.32 ``v1/spec_decode/draft_model.py``, ``llm_base_proposer.py`` (what a draft gives up for the target's
own), ``model_executor/models/llama_eagle3.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vstate.inventory.adapters.decoder import Attention, element_bytes, rotary_table
from vstate.inventory.adapters.plan import AttentionLayer, Layer, ModelPlan, RotaryTable, StateLayer, Weights
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Adapter, Context, find_adapter
from vstate.inventory.adapters.weights import Share
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import Owner

PREFIX = "draft_model."
"""Under which vLLM builds a draft that is a model of its own."""
HEADS = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")
AUXILIARY_LAYERS = 3
"""Layers of the target whose hidden states a head reads where its configuration does not say."""
LONG_BYTES = 8


def with_draft(plan: ModelPlan, architecture: str, target: Mapping[str, Any], context: Context) -> ModelPlan:
    """Return the plan with the draft that the settings ask for.

    Args:
        plan: What the target keeps, a native draft included.
        architecture: How errors name the target.
        target: The target's configuration.
        context: What the engine is started with.

    Raises:
        VstateError: The model has no such draft, or nothing is known of it.
    """
    drafting = context.settings.drafting
    if drafting is None or drafting.method == "ngram":
        return plan
    if drafting.method == "mtp":
        if not plan.draft_modules:
            raise VstateError(f"{architecture} has no native draft; draft by another method than mtp, or not at all")
        return plan
    if drafting.config is None:
        raise VstateError(f"drafts by {drafting.method} need a model; name its folder in speculative_config")
    if drafting.method == "draft_model":
        return _with_model(plan, drafting.config, context)
    if drafting.method == "eagle3":
        return _with_head(plan, target, drafting.config, context)
    raise VstateError(f"drafts by {drafting.method} are not known; register an adapter")


def _with_model(plan: ModelPlan, config: Mapping[str, Any], context: Context) -> ModelPlan:
    """Add a model of its own, whose layers join the target's groups."""
    adapter = find_adapter(config)
    own = adapter.make(ConfigReader(config, Adapter.architecture(config)), context.without_draft)
    if own.media is not None:
        raise VstateError(f"{Adapter.architecture(config)}: a draft with media is not known; draft by a text model")
    total = sum(part.bytes for part in own.weights) - _shared(own.rotary_tables, plan.rotary_tables)
    # States of a draft are as wide as the settings make the target's: drafts are verified by the target alone.
    layers = tuple(replace(layer, name=PREFIX + layer.name, owner=Owner.DRAFT) for layer in own.layers)
    return _added(plan, layers, Weights(Owner.DRAFT, "", total))


def _with_head(plan: ModelPlan, target: Mapping[str, Any], config: Mapping[str, Any], context: Context) -> ModelPlan:
    """Add an EAGLE3 head of the Llama kind.

    The first of its layers reads the embedding beside the hidden state; three hidden states of the target are
    projected to one before it; its vocabulary may be smaller than the target's.
    """
    architecture = Adapter.architecture(config)
    if architecture not in HEADS:
        raise VstateError(f"the EAGLE3 head {architecture} is not known; known are {', '.join(HEADS)}")
    head = ConfigReader(config, architecture)
    attention = Attention.read(head)
    hidden, count = head.integer("hidden_size"), head.integer("num_hidden_layers")
    share, width = Share(context.ranks, architecture), element_bytes(context)
    first = _target_layers(target)
    bias = head.get("attention_bias", False)
    layer = attention.weight_bytes(hidden, share, width, bias=bias)
    layer += (share.gated_mlp(hidden, head.integer("intermediate_size")) + 3 * hidden) * width
    queries = share.of(attention.heads, "attention heads") * attention.key_size
    queries += share.kv_heads(attention.kv_heads) * (attention.key_size + attention.value_size)
    read = head.get("target_hidden_size", hidden) * head.get("num_aux_hidden_states", AUXILIARY_LAYERS)
    vocabulary = head.integer("draft_vocab_size", "vocab_size")
    total = count * layer + (queries * hidden + read * hidden + hidden) * width
    total += share.vocabulary(vocabulary, hidden) * width
    if vocabulary != head.integer("vocab_size"):
        total += vocabulary * LONG_BYTES
    table = rotary_table(head, attention.key_size, context)
    total += 0 if table in plan.rotary_tables else table.bytes
    embedding = share.vocabulary(head.integer("vocab_size"), hidden) * width
    layers = tuple(
        attention.layer(f"model.layers.{first + index}.self_attn.attn", context, Owner.DRAFT) for index in range(count)
    )
    return _added(plan, layers, Weights(Owner.DRAFT, "", total, embedding))


def _target_layers(target: Mapping[str, Any]) -> int:
    """Return the number of the target's layers, from which those of a head count on."""
    text = next((target[name] for name in ("text_config", "llm_config") if name in target), target)
    return ConfigReader(text, Adapter.architecture(target)).integer("num_hidden_layers")


def _shared(own: tuple[RotaryTable, ...], target: tuple[RotaryTable, ...]) -> int:
    """Return the bytes of tables of angles that a draft finds among the target's (``get_rope``)."""
    return sum(table.bytes for table in own if table in target)


def _added(plan: ModelPlan, layers: tuple[AttentionLayer | StateLayer, ...], weights: Weights) -> ModelPlan:
    every: tuple[Layer, ...] = plan.layers + layers
    return replace(plan, layers=every, weights=(*plan.weights, weights))
