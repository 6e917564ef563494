"""MiMo-V2: full and sliding attention with heads of their own, keys wider than values, sinks, a native draft; media.

Sources: vLLM 0.32 ``model_executor/models/mimo_v2.py``, ``mimo_v2_mtp.py``, ``mimo_v2_omni.py``. vLLM builds one
module of a native draft, whatever a checkpoint has.
"""

from __future__ import annotations

from vstate.inventory.adapters.decoder import Attention, element_bytes, embedding_bytes, rotary_bytes
from vstate.inventory.adapters.experts import Experts
from vstate.inventory.adapters.media import mimo
from vstate.inventory.adapters.plan import ModelPlan, Weights
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Adapter, Context
from vstate.inventory.adapters.weights import Share
from vstate.inventory.dtypes import dtype_bytes
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import Owner

FLASH = "MiMoV2FlashForCausalLM"
OMNI = "MiMoV2OmniForCausalLM"
PUBLISHED = "MiMoV2ForCausalLM"
DRAFT_MODULES = 1


def plan(reader: ConfigReader, context: Context) -> ModelPlan:
    """Say what a model of this family keeps.

    Raises:
        VstateError: A layer's entry in the pattern is neither 0 (full) nor 1 (sliding).
    """
    model = _Model(reader, context)
    media = "vision_config" in reader
    encoder = mimo.encoder(reader, context) if media else None
    prefix = "language_model." if media else ""
    layers = [
        model.attention(slides).layer(f"{prefix}model.layers.{index}.self_attn.attn", context)
        for index, slides in enumerate(model.pattern)
    ]
    weights = [Weights(Owner.TARGET, "", model.weight_bytes())]
    drafting = context.settings.drafting
    native = drafting is not None and drafting.method == "mtp"
    if native:
        layers.append(model.sliding.layer("model.mtp.layers.0.self_attn.attn", context, Owner.DRAFT))
        weights.append(Weights(Owner.DRAFT, "", model.draft_bytes(), model.embeddings))
    return ModelPlan(
        layers=tuple(layers),
        weights=(*weights, *(encoder.weights if encoder else ())),
        max_positions=reader.integer("max_position_embeddings"),
        hidden_size=model.hidden,
        block_heads=model.share.kv_heads(model.full.kv_heads),
        block_head_size=model.full.key_size,
        media=encoder.rules if encoder else None,
        draft_modules=DRAFT_MODULES if native else 0,
        architecture=OMNI if media else "",
    )


class _Model:
    """The language model, read once."""

    def __init__(self, reader: ConfigReader, context: Context) -> None:
        self.reader = reader
        self.share, self.width = Share(context.ranks, reader.model), element_bytes(context)
        self.hidden = reader.integer("hidden_size")
        key = reader.integer("head_dim")
        heads, kv_heads = reader.integer("num_attention_heads"), reader.integer("num_key_value_heads")
        self.full = Attention(heads, kv_heads, key, reader.get("v_head_dim", key))
        key = reader.get("swa_head_dim", key)
        self.sliding = Attention(
            reader.integer("swa_num_attention_heads"),
            reader.integer("swa_num_key_value_heads"),
            key,
            reader.get("swa_v_head_dim", key),
            reader.integer("sliding_window_size", "sliding_window"),
        )
        self.pattern = reader.sequence("hybrid_layer_pattern")
        for index, entry in enumerate(self.pattern):
            if entry not in (0, 1):
                raise VstateError(f"{reader.model}: layer {index} is of the unknown type {entry!r}")
        tied = reader.get("tie_word_embeddings", False)
        self.embeddings = embedding_bytes(reader, self.hidden, self.share, self.width, tied=tied)

    def attention(self, slides: int) -> Attention:
        """Return the attention of a layer."""
        return self.sliding if slides else self.full

    def weight_bytes(self) -> int:
        """Return the target's bytes on one rank."""
        total = self.embeddings + self.hidden * self.width
        mixed = self.reader.sequence("moe_layer_freq")
        for slides, experts in zip(self.pattern, mixed, strict=True):
            total += self._attention_bytes(slides) + 2 * self.hidden * self.width
            total += self._expert_bytes() if experts else self._dense_bytes()
        return total + sum(self._rotary_tables().values())

    def draft_bytes(self) -> int:
        """Return the draft's own bytes: a projection of two rows to one, whole on every rank, a layer, five norms."""
        joined = (2 * self.hidden * self.hidden + 5 * self.hidden) * self.width
        # Its rotary table is that of the target's sliding layers, which it finds by its parameters (`get_rope`).
        return joined + self._attention_bytes(1) + self._dense_bytes()

    def _attention_bytes(self, slides: int) -> int:
        attention = self.attention(slides)
        bias = self.reader.get("attention_bias", False)
        total = attention.weight_bytes(self.hidden, self.share, self.width, bias=bias)
        place = "add_swa_attention_sink_bias" if slides else "add_full_attention_sink_bias"
        if self.reader.get(place, False):
            total += self.share.of(attention.heads, "attention heads") * self.width
        return total

    def _dense_bytes(self) -> int:
        return self.share.gated_mlp(self.hidden, self.reader.integer("intermediate_size")) * self.width

    def _expert_bytes(self) -> int:
        reader = self.reader
        inner = reader.integer("moe_intermediate_size")
        experts = Experts(reader.integer("n_routed_experts"), self.hidden, inner, correction=True)
        router = dtype_bytes(reader.get("moe_router_dtype", "float32"))
        return experts.bytes(self.share, self.width) + experts.router_bytes(router)

    def _rotary_tables(self) -> dict[tuple[float, int, int], int]:
        """Return the bytes of each table of angles; layers of one head size, angle and width share one."""
        reader, positions = self.reader, self.reader.integer("max_position_embeddings")
        angles = {0: reader.number("rope_theta"), 1: reader.get("swa_rope_theta", reader.number("rope_theta"))}
        tables = {}
        for slides in set(self.pattern):
            head = self.attention(slides).key_size
            rotary = int(head * reader.get("partial_rotary_factor", 1.0))
            tables[(angles[slides], head, rotary)] = rotary_bytes(positions, rotary, self.width)
        return tables


ADAPTER = Adapter("mimo", 1, (FLASH, OMNI, PUBLISHED), plan)
