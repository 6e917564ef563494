"""Decoders of one kind of layer, dense or with experts: Llama, Mistral, Mixtral, Qwen2, Qwen3 and their kin."""

from __future__ import annotations

from dataclasses import dataclass

from vstate.inventory.adapters.decoder import Attention, element_bytes, embedding_bytes, rotary_table
from vstate.inventory.adapters.plan import ModelPlan, Weights
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Adapter, Context
from vstate.inventory.adapters.weights import Share
from vstate.schemas.vocabulary import Owner


@dataclass(frozen=True)
class Habits:
    """What the architectures of this family do otherwise than each other.

    Attributes:
        bias_field: Field that says whether queries, keys and values have a bias.
        bias: What it says where it is not there.
        head_norms: Whether query and key heads are normed.
    """

    bias_field: str = "attention_bias"
    bias: bool = False
    head_norms: bool = False


HABITS = {
    "LlamaForCausalLM": Habits(),
    "MistralForCausalLM": Habits(),
    "Qwen2ForCausalLM": Habits("qkv_bias", bias=True),
    "Qwen3ForCausalLM": Habits(head_norms=True),
}


def plan(reader: ConfigReader, context: Context) -> ModelPlan:
    """Say what a model of this family keeps."""
    habits = HABITS[reader.model]
    attention = Attention.read(reader)
    hidden, count = reader.integer("hidden_size"), reader.integer("num_hidden_layers")
    share, width = Share(context.ranks, reader.model), element_bytes(context)
    positions = reader.integer("max_position_embeddings")
    bias = reader.get(habits.bias_field, habits.bias)
    layer = attention.weight_bytes(hidden, share, width, bias=bias, norms=habits.head_norms)
    layer += (share.gated_mlp(hidden, reader.integer("intermediate_size")) + 2 * hidden) * width
    tied = reader.get("tie_word_embeddings", False)
    total = count * layer + hidden * width + embedding_bytes(reader, hidden, share, width, tied=tied)
    table = rotary_table(reader, attention.key_size, context)
    total += table.bytes
    return ModelPlan(
        layers=tuple(attention.layer(f"model.layers.{index}.self_attn.attn", context) for index in range(count)),
        weights=(Weights(Owner.TARGET, "", total),),
        max_positions=positions,
        hidden_size=hidden,
        block_heads=share.kv_heads(attention.kv_heads),
        block_head_size=attention.key_size,
        rotary_tables=(table,),
    )


ADAPTER = Adapter("dense", 1, tuple(HABITS), plan)
