"""GatedDeltaNet with full attention in between: Qwen3-Next, Qwen3.5 and Qwen3.6, dense, with experts, with vision.

Sources: vLLM 0.32 ``model_executor/models/qwen3_next.py``, ``qwen3_5.py``, their ``_mtp`` modules;
``layers/mamba/gdn``; ``MambaStateShapeCalculator.gated_delta_net_state_shape``.
"""

from __future__ import annotations

from vstate.inventory.adapters.decoder import (
    Attention,
    element_bytes,
    embedding_bytes,
    refuse_quantized,
    rotary_table,
)
from vstate.inventory.adapters.experts import FLOAT_BYTES, Experts
from vstate.inventory.adapters.media import qwen
from vstate.inventory.adapters.plan import Layer, ModelPlan, StateLayer, StatePart, Weights
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Adapter, Context
from vstate.inventory.adapters.states import AUTO, recurrent_dtype, tail
from vstate.inventory.adapters.weights import Share
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import Owner, StateClass

NEXT = "Qwen3NextForCausalLM"
TEXT = ("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM")
VISION = ("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration")
MIXED_TYPES = {"qwen3_5_moe_text": True, "qwen3_5_text": False}
"""Types of text models of Qwen3.5, and whether their layers have experts (``Qwen3_5DecoderLayer``)."""
TURNED = 0.25
"""Share of a head that is turned where a configuration does not say (transformers' ``Qwen3NextConfig``)."""


def plan(reader: ConfigReader, context: Context) -> ModelPlan:
    """Say what a model of this family keeps.

    Raises:
        VstateError: A layer is neither linear nor full attention, weights are quantized, or vLLM takes no such model.
    """
    refuse_quantized(reader)
    model = _Model(reader, context)
    encoder = qwen.encoder(reader, context) if reader.model in VISION else None
    native = model.draft_layers()
    layers = model.layers() + [model.draft_layer(index) for index in range(native)]
    weights = [Weights(Owner.TARGET, "", model.weight_bytes())]
    if native:
        weights.append(Weights(Owner.DRAFT, "", model.draft_bytes(native), model.embeddings))
    return ModelPlan(
        layers=tuple(layers),
        weights=(*weights, *(encoder.weights if encoder else ())),
        max_positions=model.text.integer("max_position_embeddings"),
        hidden_size=model.hidden,
        block_heads=model.share.kv_heads(model.attention.kv_heads),
        block_head_size=model.attention.key_size,
        media=encoder.rules if encoder else None,
        # Only a field of Qwen3-Next's name makes layers modules that read further ahead (`use_multi_module_mtp`).
        draft_modules=native if model.is_next else min(native, 1),
        rotary_tables=(model.angles,) if model.turns else (),
    )


class _Model:
    """The language model, read once."""

    def __init__(self, reader: ConfigReader, context: Context) -> None:
        text = reader.part_or_self("text_config")
        self.text, self.context = text, context
        self.share, self.width = Share(context.ranks, reader.model), element_bytes(context)
        head = text.integer("head_dim")
        self.attention = Attention(text.integer("num_attention_heads"), text.integer("num_key_value_heads"), head, head)
        self.hidden = text.integer("hidden_size")
        self.prefix = "language_model." if reader.model in VISION else ""
        self.is_next = reader.model == NEXT
        self.kinds = _kinds(text)
        self.mixed = self.is_next or _is_mixed(text)
        self.dense = text.sequence("mlp_only_layers") if self.is_next and "mlp_only_layers" in text else []
        self.turns = "full_attention" in self.kinds
        self.angles = rotary_table(text, head, context, turned=TURNED)
        # Qwen3-Next has a head of its own whatever its configuration says; with vision the text's word counts.
        tied = not self.is_next and text.get("tie_word_embeddings", False)
        self.embeddings = embedding_bytes(text, self.hidden, self.share, self.width, tied=tied)
        self.key_heads, self.value_heads = text.integer("linear_num_key_heads"), text.integer("linear_num_value_heads")
        self.key, self.value = text.integer("linear_key_head_dim"), text.integer("linear_value_head_dim")
        self.kernel = text.integer("linear_conv_kernel_dim")

    @property
    def channels(self) -> int:
        """Channels of the convolution on one rank: queries, keys and values."""
        whole = 2 * self.key_heads * self.key + self.value_heads * self.value
        return self.share.of(whole, "channels of the convolution")

    def layers(self) -> list[Layer]:
        """Return the target's layers in order."""
        found: list[Layer] = []
        for index, kind in enumerate(self.kinds):
            name = f"{self.prefix}model.layers.{index}"
            if kind == "linear_attention":
                found.append(StateLayer(f"{name}.linear_attn", self._state()))
            else:
                found.append(self.attention.layer(f"{name}.self_attn.attn", self.context))
        return found

    def draft_layers(self) -> int:
        """Return the layers of the native draft, 0 where none is asked for or the model has none.

        Raises:
            VstateError: So many draft tokens are not a multiple of the layers (``SpeculativeConfig``).
        """
        drafting = self.context.settings.drafting
        if drafting is None or drafting.method != "mtp":
            return 0
        layers = self.text.get("num_nextn_predict_layers" if self.is_next else "mtp_num_hidden_layers", 1)
        if layers and drafting.tokens > layers and drafting.tokens % layers:
            raise VstateError(
                f"{self.text.model}: {drafting.tokens} draft tokens are no multiple of the draft's {layers} layers; "
                "ask for fewer or more"
            )
        return layers

    def draft_layer(self, index: int) -> Layer:
        """Return a layer of the native draft, which is full attention."""
        return self.attention.layer(f"mtp.layers.{index}.self_attn.attn", self.context, Owner.DRAFT)

    def _state(self) -> tuple[StatePart, ...]:
        heads = self.share.of(self.value_heads, "value heads")
        said = AUTO if self.is_next else self.text.get("mamba_ssm_dtype", AUTO)
        dtype = recurrent_dtype(self.context, said, delta_net=True)
        state = StatePart(StateClass.RECURRENT, (heads, self.value, self.key), dtype)
        return (tail(self.context, self.kernel, self.channels), state)

    def weight_bytes(self) -> int:
        """Return the target's bytes on one rank."""
        total = self.embeddings + self.hidden * self.width + self._layers_bytes(self.kinds)
        return total + (self.angles.bytes if self.turns else 0)

    def draft_bytes(self, layers: int) -> int:
        """Return the draft's own bytes: a projection of two rows to one, two norms before it, layers, and a norm.

        Its table of angles is the target's, which it finds by its parameters (``get_rope``).
        """
        joined = (self.share.column(2 * self.hidden, self.hidden) + 3 * self.hidden) * self.width
        total = joined + self._layers_bytes(["full_attention"] * layers)
        return total if self.turns else total + self.angles.bytes

    def _layers_bytes(self, kinds: list[str]) -> int:
        """Return the bytes of layers of these kinds, with their norms and scales of what a layer adds.

        Raises:
            VstateError: None of them has experts in a model that has some, which vLLM does not take.
        """
        sparse = [self._is_sparse(index) for index in range(len(kinds))]
        if self.mixed and not any(sparse):
            raise VstateError(
                f"{self.text.model}: none of {len(kinds)} layers has experts, which vLLM does not take; "
                "correct num_experts, decoder_sparse_step or mlp_only_layers"
            )
        rows = 4 if self.text.get("layer_scale", False) else 2
        total = len(kinds) * rows * self.hidden * self.width
        for kind, has_experts in zip(kinds, sparse, strict=True):
            total += self._linear_bytes() if kind == "linear_attention" else self._attention_bytes()
            total += self._experts_bytes() if has_experts else self._dense_bytes()
        return total

    def _attention_bytes(self) -> int:
        """Return the bytes of a layer of attention; its output may be gated by as much again as its queries."""
        share, width, attention = self.share, self.width, self.attention
        bias = self.text.get("qkv_bias", False)
        total = attention.weight_bytes(self.hidden, share, width, bias=bias, norms=True)
        if self.text.get("attn_output_gate", True):
            total += share.column(self.hidden, attention.heads * attention.key_size, bias=bias) * width
        return total

    def _linear_bytes(self) -> int:
        """Return the bytes of a layer of linear attention.

        Its kernel; projections to queries, keys, values and the gate, and to two numbers per value head; a bias per
        value head, and the logarithm of its decay as float32; a norm of a value head; the projection back.
        """
        share, width, hidden = self.share, self.width, self.hidden
        heads, values = share.of(self.value_heads, "value heads"), self.value_heads * self.value
        elements = self.kernel * self.channels
        elements += share.column(hidden, 2 * self.key_heads * self.key + 2 * values)
        elements += share.column(hidden, 2 * self.value_heads) + heads + self.value + share.row(values, hidden)
        return elements * width + heads * FLOAT_BYTES

    def _dense_bytes(self) -> int:
        return self.share.gated_mlp(self.hidden, self.text.integer("intermediate_size")) * self.width

    def _experts_bytes(self) -> int:
        """Return the bytes of routed experts, their router, a shared expert and its gate, which is there without it."""
        text, share, width, hidden = self.text, self.share, self.width, self.hidden
        experts = Experts(text.integer("num_experts"), hidden, text.integer("moe_intermediate_size"))
        shared = share.gated_mlp(hidden, text.integer("shared_expert_intermediate_size"))
        return experts.bytes(share, width) + experts.router_bytes(width) + (shared + hidden) * width

    def _is_sparse(self, index: int) -> bool:
        """Say whether a layer has experts; Qwen3-Next's draft counts its layers anew (``Qwen3NextDecoderLayer``)."""
        if not self.mixed or not self.is_next:
            return self.mixed
        every = self.text.get("decoder_sparse_step", 1)
        return self.text.integer("num_experts") > 0 and index not in self.dense and (index + 1) % every == 0


def _is_mixed(text: ConfigReader) -> bool:
    kind = text.text("model_type")
    if kind not in MIXED_TYPES:
        raise VstateError(
            f"{text.model}: {text.place}model_type is {kind!r}, which is not known; known are {', '.join(MIXED_TYPES)}"
        )
    return MIXED_TYPES[kind]


def _kinds(text: ConfigReader) -> list[str]:
    count = text.integer("num_hidden_layers")
    if "layer_types" in text:
        kinds = text.sequence("layer_types")
    else:
        every = text.get("full_attention_interval", 4)
        kinds = ["linear_attention" if (index + 1) % every else "full_attention" for index in range(count)]
    for index, kind in enumerate(kinds):
        if kind not in ("linear_attention", "full_attention"):
            raise VstateError(f"{text.model}: layer {index} is of the unknown type {kind!r}")
    if len(kinds) != count:
        raise VstateError(f"{text.model}: {len(kinds)} layer types for {count} layers; correct the configuration")
    return kinds


ADAPTER = Adapter("gated_delta_net", 2, (NEXT, *TEXT, *VISION), plan)
