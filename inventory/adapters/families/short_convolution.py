"""Short convolutions with attention in between: LFM2, LFM2-MoE, LFM2.5, and the language model of LFM2-VL.

Sources: vLLM 0.32 ``model_executor/models/lfm2.py``, ``lfm2_moe.py``, ``lfm2_vl.py``; ``layers/mamba/short_conv.py``;
``MambaStateShapeCalculator.short_conv_state_shape``.
"""

from __future__ import annotations

from vstate.inventory.adapters.decoder import (
    Attention,
    element_bytes,
    embedding_bytes,
    refuse_quantized,
    rotary_table,
)
from vstate.inventory.adapters.experts import Experts
from vstate.inventory.adapters.media import lfm
from vstate.inventory.adapters.plan import Layer, ModelPlan, StateLayer, Weights
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Adapter, Context
from vstate.inventory.adapters.states import tail
from vstate.inventory.adapters.weights import Share
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import Owner

MEDIA = "Lfm2VlForConditionalGeneration"
DENSE = "Lfm2ForCausalLM"
MIXED = "Lfm2MoeForCausalLM"
MIXED_TYPE = "lfm2_moe"


def plan(reader: ConfigReader, context: Context) -> ModelPlan:
    """Say what a model of this family keeps.

    Raises:
        VstateError: A layer is neither a convolution nor full attention, weights are quantized, or vLLM takes no such
            model.
    """
    refuse_quantized(reader)
    text = reader.part_or_self("text_config")
    mixed = reader.model == MIXED or (reader.model == MEDIA and text.text("model_type") == MIXED_TYPE)
    prefix = "language." if reader.model == MEDIA else ""
    hidden, heads = text.integer("hidden_size"), text.integer("num_attention_heads")
    # Layers take no head_dim, though blocks of a hybrid are sized by it (`ModelConfig.get_head_size`).
    head = hidden // heads
    attention = Attention(heads, text.integer("num_key_value_heads"), head, head)
    share, width = Share(context.ranks, reader.model), element_bytes(context)
    channels = hidden if mixed else text.integer("conv_dim")
    kinds = _kinds(text)
    layers: list[Layer] = []
    total = 0
    for index, kind in enumerate(kinds):
        name = f"{prefix}model.layers.{index}"
        if kind == "conv":
            columns = text.integer("conv_L_cache")
            part = tail(context, columns, share.of(channels, "channels"))
            layers.append(StateLayer(f"{name}.short_conv", (part,)))
            total += _convolution_bytes(columns, channels, share, width, bias=text.get("conv_bias", False))
        else:
            layers.append(attention.layer(f"{name}.self_attn.attn", context))
            total += attention.weight_bytes(hidden, share, width, norms=True)
        total += _feed_forward_bytes(text, share, width, index, mixed=mixed) + 2 * hidden * width
    tables = (rotary_table(text, head, context),) if "full_attention" in kinds else ()
    total += sum(table.bytes for table in tables)
    # The head is the embedding, whatever the configuration says.
    total += hidden * width + embedding_bytes(text, hidden, share, width, tied=True)
    encoder = lfm.encoder(reader, context) if reader.model == MEDIA else None
    return ModelPlan(
        layers=tuple(layers),
        weights=(Weights(Owner.TARGET, "", total), *(encoder.weights if encoder else ())),
        max_positions=text.integer("max_position_embeddings"),
        hidden_size=hidden,
        block_heads=share.kv_heads(attention.kv_heads),
        block_head_size=text.get("head_dim", head),
        media=encoder.rules if encoder else None,
        rotary_tables=tables,
    )


def _kinds(text: ConfigReader) -> list[str]:
    count = text.integer("num_hidden_layers")
    if "layer_types" in text:
        kinds = text.sequence("layer_types")
    else:
        full = set(text.sequence("full_attn_idxs"))
        kinds = ["full_attention" if index in full else "conv" for index in range(count)]
    for index, kind in enumerate(kinds):
        if kind not in ("conv", "full_attention"):
            raise VstateError(f"{text.model}: layer {index} is of the unknown type {kind!r}")
    if len(kinds) != count:
        raise VstateError(f"{text.model}: {len(kinds)} layer types for {count} layers; correct the configuration")
    return kinds


def _convolution_bytes(columns: int, channels: int, share: Share, width: int, *, bias: bool) -> int:
    """Return the bytes of the kernel, of the projection to three times the channels, and of that back."""
    kernel = share.column(columns, channels, bias=bias)
    projections = share.column(channels, 3 * channels, bias=bias) + share.row(channels, channels, bias=bias)
    return (kernel + projections) * width


def _feed_forward_bytes(text: ConfigReader, share: Share, width: int, index: int, *, mixed: bool) -> int:
    if not mixed:
        return share.gated_mlp(text.integer("block_dim"), _adjusted_width(text)) * width
    hidden, dense = text.integer("hidden_size"), text.integer("num_dense_layers")
    if dense >= text.integer("num_hidden_layers"):
        raise VstateError(f"{text.model}: no layer has experts, which vLLM does not take; correct num_dense_layers")
    if index < dense:
        return share.gated_mlp(hidden, text.integer("intermediate_size")) * width
    experts = Experts(
        text.integer("num_experts"),
        hidden,
        text.integer("moe_intermediate_size"),
        correction=text.get("use_expert_bias", True),
    )
    return experts.bytes(share, width) + experts.router_bytes(width)


def _adjusted_width(text: ConfigReader) -> int:
    """Return the inner width of a dense layer: two thirds of what is said, times a factor, rounded up."""
    inner = text.integer("block_ff_dim", "intermediate_size")
    if not text.get("block_auto_adjust_ff_dim", True):
        return inner
    inner = int(text.get("block_ffn_dim_multiplier", 1.0) * int(2 * inner / 3))
    multiple = text.get("block_multiple_of", 256)
    return -(-inner // multiple) * multiple


ADAPTER = Adapter("short_convolution", 2, (DENSE, MIXED, MEDIA), plan)
