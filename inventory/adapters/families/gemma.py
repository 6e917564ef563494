"""Gemma 2 and 3: sliding and full attention, norms before and after; with SigLIP for images.

Sources: vLLM 0.32 ``model_executor/models/gemma2.py``, ``gemma3.py``, ``gemma3_mm.py``.
"""

from __future__ import annotations

from dataclasses import replace

from vstate.inventory.adapters.decoder import Attention, element_bytes, embedding_bytes, rotary_bytes
from vstate.inventory.adapters.media import gemma
from vstate.inventory.adapters.plan import ModelPlan, Weights
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Adapter, Context
from vstate.inventory.adapters.weights import Share
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import Owner

SECOND = "Gemma2ForCausalLM"
TEXT = "Gemma3ForCausalLM"
VISION = "Gemma3ForConditionalGeneration"


def plan(reader: ConfigReader, context: Context) -> ModelPlan:
    """Say what a model of this family keeps.

    Raises:
        VstateError: A layer is neither sliding nor full attention.
    """
    text = reader.part_or_self("text_config")
    attention = Attention.read(text)
    kinds = _kinds(text, every=2 if reader.model == SECOND else 6)
    sliding = replace(attention, window_tokens=text.integer("sliding_window"))
    hidden = text.integer("hidden_size")
    share, width = Share(context.ranks, reader.model), element_bytes(context)
    positions = text.integer("max_position_embeddings")
    third = reader.model != SECOND
    layer = attention.weight_bytes(hidden, share, width, bias=text.get("attention_bias", False), norms=third)
    layer += (share.gated_mlp(hidden, text.integer("intermediate_size")) + 4 * hidden) * width
    tied = text.get("tie_word_embeddings", True)
    # One norm at the end, and the number by which embeddings are scaled.
    total = len(kinds) * layer + (hidden + 1) * width + embedding_bytes(text, hidden, share, width, tied=tied)
    # Gemma 3 turns sliding and full layers by different angles.
    total += (len(set(kinds)) if third else 1) * rotary_bytes(positions, attention.key_size, width)
    encoder = gemma.encoder(reader, context) if reader.model == VISION else None
    prefix = "language_model." if reader.model == VISION else ""
    return ModelPlan(
        layers=tuple(
            (sliding if kind == "sliding_attention" else attention).layer(
                f"{prefix}model.layers.{index}.self_attn.attn", context
            )
            for index, kind in enumerate(kinds)
        ),
        weights=(Weights(Owner.TARGET, "", total), *(encoder.weights if encoder else ())),
        max_positions=positions,
        hidden_size=hidden,
        block_heads=share.kv_heads(attention.kv_heads),
        block_head_size=attention.key_size,
        media=encoder.rules if encoder else None,
    )


def _kinds(text: ConfigReader, *, every: int) -> list[str]:
    count = text.integer("num_hidden_layers")
    if "layer_types" in text:
        kinds = text.sequence("layer_types")
    else:
        every = text.get("sliding_window_pattern", every)
        kinds = ["sliding_attention" if (index + 1) % every else "full_attention" for index in range(count)]
    for index, kind in enumerate(kinds):
        if kind not in ("sliding_attention", "full_attention"):
            raise VstateError(f"{text.model}: layer {index} is of the unknown type {kind!r}")
    if len(kinds) != count:
        raise VstateError(f"{text.model}: {len(kinds)} layer types for {count} layers; correct the configuration")
    return kinds


ADAPTER = Adapter("gemma", 1, (SECOND, TEXT, VISION), plan)
