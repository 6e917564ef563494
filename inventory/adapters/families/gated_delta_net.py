"""GatedDeltaNet with full attention in between: Qwen3-Next, Qwen3.5 and Qwen3.6, dense, with experts, with vision.

Sources: vLLM 0.32 ``model_executor/models/qwen3_next.py``, ``qwen3_5.py``, their ``_mtp`` modules;
``layers/mamba/gdn``; ``MambaStateShapeCalculator.gated_delta_net_state_shape``.
"""

from __future__ import annotations

from vstate.inventory.adapters.decoder import Attention, element_bytes, embedding_bytes, rotary_bytes
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


def plan(reader: ConfigReader, context: Context) -> ModelPlan:
    """Say what a model of this family keeps.

    Raises:
        VstateError: A layer is neither linear nor full attention.
    """
    model = _Model(reader, context)
    encoder = qwen.encoder(reader, context) if reader.model in VISION else None
    draft = context.settings.drafting
    native = model.draft_layers if draft is not None and draft.method == "mtp" else 0
    layers = model.layers() + [model.draft_layer(index, context) for index in range(native)]
    weights = [Weights(Owner.TARGET, "", model.weight_bytes())]
    if native:
        # The draft's own rotary table is the target's, which it finds by its parameters (`get_rope`).
        weights.append(Weights(Owner.DRAFT, "", model.draft_bytes(native), model.embeddings))
    return ModelPlan(
        layers=tuple(layers),
        weights=(*weights, *(encoder.weights if encoder else ())),
        max_positions=model.positions,
        hidden_size=model.hidden,
        block_heads=model.share.kv_heads(model.attention.kv_heads),
        block_head_size=model.attention.key_size,
        media=encoder.rules if encoder else None,
        draft_modules=1 if native else 0,
    )


class _Model:
    """The language model, read once."""

    def __init__(self, reader: ConfigReader, context: Context) -> None:
        text = reader.part_or_self("text_config")
        self.text, self.context = text, context
        self.share, self.width = Share(context.ranks, reader.model), element_bytes(context)
        self.attention = Attention.read(text)
        self.hidden = text.integer("hidden_size")
        self.positions = text.integer("max_position_embeddings")
        self.prefix = "language_model." if reader.model in VISION else ""
        self.is_next = reader.model == NEXT
        self.kinds = _kinds(text)
        tied = reader.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
        self.embeddings = embedding_bytes(text, self.hidden, self.share, self.width, tied=tied)
        self.key_heads, self.value_heads = text.integer("linear_num_key_heads"), text.integer("linear_num_value_heads")
        self.key, self.value = text.integer("linear_key_head_dim"), text.integer("linear_value_head_dim")
        self.kernel = text.integer("linear_conv_kernel_dim")

    @property
    def channels(self) -> int:
        """Channels of the convolution on one rank: queries, keys and values."""
        whole = 2 * self.key_heads * self.key + self.value_heads * self.value
        return self.share.of(whole, "channels of the convolution")

    @property
    def draft_layers(self) -> int:
        """Layers of the native draft, 0 where the model has none."""
        return self.text.get("num_nextn_predict_layers" if self.is_next else "mtp_num_hidden_layers", 0)

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

    def draft_layer(self, index: int, context: Context) -> Layer:
        """Return a layer of the native draft, which is full attention."""
        return self.attention.layer(f"mtp.layers.{index}.self_attn.attn", context, Owner.DRAFT)

    def _state(self) -> tuple[StatePart, ...]:
        heads = self.share.of(self.value_heads, "value heads")
        said = AUTO if self.is_next else self.text.get("mamba_ssm_dtype", AUTO)
        dtype = recurrent_dtype(self.context, said, delta_net=True)
        state = StatePart(StateClass.RECURRENT, (heads, self.value, self.key), dtype)
        return (tail(self.context, self.kernel, self.channels), state)

    def weight_bytes(self) -> int:
        """Return the target's bytes on one rank."""
        total = self.embeddings + self.hidden * self.width
        for index, kind in enumerate(self.kinds):
            total += self._linear_bytes() if kind == "linear_attention" else self._attention_bytes()
            total += self._feed_forward_bytes(index) + 2 * self.hidden * self.width
        if "full_attention" in self.kinds:
            total += rotary_bytes(self.positions, self._rotary_size(), self.width)
        return total

    def draft_bytes(self, layers: int) -> int:
        """Return the draft's own bytes: a projection of two rows to one, two norms before it, layers, and a norm."""
        layer = self._attention_bytes() + self._feed_forward_bytes(0, draft=True) + 2 * self.hidden * self.width
        joined = (self.share.column(2 * self.hidden, self.hidden) + 3 * self.hidden) * self.width
        return joined + layers * layer

    def _rotary_size(self) -> int:
        said = self.text.any("rope_parameters")
        parameters = self.text.part("rope_parameters") if isinstance(said, dict) else self.text
        partial = parameters.get("partial_rotary_factor", self.text.get("partial_rotary_factor", 0.25))
        return int(self.attention.key_size * partial)

    def _attention_bytes(self) -> int:
        """Return the bytes of a layer of attention; its output may be gated by as much again as its queries."""
        share, width, attention = self.share, self.width, self.attention
        total = attention.weight_bytes(
            self.hidden, share, width, bias=self.text.get("attention_bias", False), norms=True
        )
        if self.text.get("attn_output_gate", True):
            total += share.column(self.hidden, attention.heads * attention.key_size) * width
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

    def _feed_forward_bytes(self, index: int, *, draft: bool = False) -> int:
        text, share, width, hidden = self.text, self.share, self.width, self.hidden
        if not self._is_sparse(index, draft=draft):
            return share.gated_mlp(hidden, text.integer("intermediate_size")) * width
        experts = Experts(text.integer("num_experts"), hidden, text.integer("moe_intermediate_size"))
        total = experts.bytes(share, width) + experts.router_bytes(width)
        shared = text.get("shared_expert_intermediate_size", 0)
        return total + (share.gated_mlp(hidden, shared) + hidden) * width if shared else total

    def _is_sparse(self, index: int, *, draft: bool) -> bool:
        if not self.text.get("num_experts", 0):
            return False
        if draft or not self.is_next:
            return True
        step = self.text.get("decoder_sparse_step", 1)
        dense = self.text.sequence("mlp_only_layers") if "mlp_only_layers" in self.text else []
        return index not in dense and (index + 1) % step == 0


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


ADAPTER = Adapter("gated_delta_net", 1, (NEXT, *TEXT, *VISION), plan)
