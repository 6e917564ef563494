"""Step-3.5 and Step-3.7: full and sliding attention with heads of their own, gated heads, experts, drafts; images.

Sources: vLLM 0.32 ``model_executor/models/step3p5.py``, ``step3p5_mtp.py``, ``step3p7.py``;
``v1/spec_decode/step3p5.py`` (each module of the draft keeps a head of its own).
"""

from __future__ import annotations

from vstate.inventory.adapters.decoder import Attention, element_bytes, embedding_bytes, rotary_bytes
from vstate.inventory.adapters.experts import FLOAT_BYTES, Experts
from vstate.inventory.adapters.media import step
from vstate.inventory.adapters.plan import ModelPlan, Weights
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Adapter, Context
from vstate.inventory.adapters.weights import Share
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import Owner

TEXT = "Step3p5ForCausalLM"
VISION = "Step3p7ForConditionalGeneration"
FULL, SLIDING = "full_attention", "sliding_attention"
SLIDING_DRAFT = "the drafting layers slide (docs.nvidia.com, nemo automodel step3p7 mtp); layer_types ends before them"


def plan(reader: ConfigReader, context: Context) -> ModelPlan:
    """Say what a model of this family keeps.

    Raises:
        VstateError: A layer is neither sliding nor full attention, or a module of the draft has no type.
    """
    model = _Model(reader, context)
    encoder = step.encoder(reader, context) if reader.model == VISION else None
    prefix = "language_model." if reader.model == VISION else ""
    layers = [
        model.attention(index).layer(f"{prefix}model.layers.{index}.self_attn.attn", context)
        for index in range(model.count)
    ]
    weights = [Weights(Owner.TARGET, "", model.weight_bytes())]
    drafting = context.settings.drafting
    modules = model.draft_modules if drafting is not None and drafting.method == "mtp" else 0
    for index in range(model.count, model.count + modules):
        layers.append(
            model.attention(index).layer(f"model.layers.{index}.mtp_block.self_attn.attn", context, Owner.DRAFT)
        )
    if modules:
        weights.append(Weights(Owner.DRAFT, "", model.draft_bytes(modules), model.embedding))
    return ModelPlan(
        layers=tuple(layers),
        weights=(*weights, *(encoder.weights if encoder else ())),
        max_positions=model.positions,
        hidden_size=model.hidden,
        block_heads=model.share.kv_heads(model.full.kv_heads),
        block_head_size=model.full.key_size,
        media=encoder.rules if encoder else None,
        draft_modules=modules,
        assumed=(SLIDING_DRAFT,) if modules and not model.kinds[model.count :] else (),
    )


class _Model:
    """The language model, read once."""

    def __init__(self, reader: ConfigReader, context: Context) -> None:
        text = reader.part("text_config") if reader.model == VISION else reader
        self.text = text
        self.share, self.width = Share(context.ranks, reader.model), element_bytes(context)
        self.hidden = text.integer("hidden_size")
        self.count = text.integer("num_hidden_layers")
        self.positions = text.integer("max_position_embeddings")
        head, other = text.integer("head_dim"), text.part("attention_other_setting")
        self.full = Attention(text.integer("num_attention_heads"), text.integer("num_attention_groups"), head, head)
        head = other.integer("head_dim")
        heads, groups = other.integer("num_attention_heads"), other.integer("num_attention_groups")
        self.sliding = Attention(heads, groups, head, head, text.integer("sliding_window"))
        self.kinds = text.sequence("layer_types")
        for index, kind in enumerate(self.kinds):
            if kind not in (FULL, SLIDING):
                raise VstateError(f"{text.model}: layer {index} is of the unknown type {kind!r}")
        self.draft_modules = text.get("num_nextn_predict_layers", 0)
        self.embedding = embedding_bytes(text, self.hidden, self.share, self.width, tied=True)
        self.sparse = {int(index) for index in text.text("moe_layers_enum").split(",")}

    def kind(self, index: int) -> str:
        """Return the type of a layer; a draft's modules count on from the target's last, and slide where none is said.

        Raises:
            VstateError: The configuration has none for a layer of the target.
        """
        if index < len(self.kinds):
            kind: str = self.kinds[index]
            return kind
        if index < self.count:
            raise VstateError(f"{self.text.model}: {self.text.place}layer_types has no entry for layer {index}")
        return SLIDING

    def _of_layer(self, values: list[float], index: int) -> float:
        """Return the entry of a list for a layer; where the list ends before it, that of a layer that slides too."""
        if index < len(values):
            return values[index]
        return values[self.kinds.index(SLIDING)] if SLIDING in self.kinds else values[-1]

    def attention(self, index: int) -> Attention:
        """Return the attention of a layer."""
        return self.sliding if self.kind(index) == SLIDING else self.full

    def weight_bytes(self) -> int:
        """Return the target's bytes on one rank."""
        tied = self.text.get("tie_word_embeddings", False)
        total = embedding_bytes(self.text, self.hidden, self.share, self.width, tied=tied) + self.hidden * self.width
        for index in range(self.count):
            total += self._attention_bytes(index) + 2 * self.hidden * self.width
            total += self._expert_bytes() if index in self.sparse else self._dense_bytes()
        tables = {self._rotary_table(index) for index in range(self.count)}
        return total + sum(rotary_bytes(self.positions, rotary, self.width) for _, rotary, _, _ in tables)

    def draft_bytes(self, modules: int) -> int:
        """Return the draft's own bytes.

        Per module a projection of two rows to one, whole on every rank, three norms, a head, and a layer with two
        norms. A table of angles that the target has is the target's.
        """
        total = 0
        own = set()
        tables = {self._rotary_table(index) for index in range(self.count)}
        for index in range(self.count, self.count + modules):
            total += (2 * self.hidden * self.hidden + 5 * self.hidden) * self.width + self.embedding
            total += self._attention_bytes(index) + self._dense_bytes()
            own.add(self._rotary_table(index))
        return total + sum(
            rotary_bytes(self.positions, rotary, self.width) for _, rotary, _, _ in own.difference(tables)
        )

    def _attention_bytes(self, index: int) -> int:
        attention = self.attention(index)
        total = attention.weight_bytes(self.hidden, self.share, self.width, norms=True)
        if self.text.get("use_head_wise_attn_gate", False):
            total += self.share.column(self.hidden, attention.heads) * self.width
        return total

    def _dense_bytes(self) -> int:
        return self.share.gated_mlp(self.hidden, self.text.integer("intermediate_size")) * self.width

    def _expert_bytes(self) -> int:
        text = self.text
        count, inner = text.integer("moe_num_experts"), text.integer("moe_intermediate_size")
        experts = Experts(count, self.hidden, inner, correction=text.get("use_moe_router_bias", False))
        router = FLOAT_BYTES if text.get("need_fp32_gate", False) else self.width
        shared = self.share.gated_mlp(self.hidden, text.integer("share_expert_dim")) * self.width
        return experts.bytes(self.share, self.width) + experts.router_bytes(router) + shared

    def _rotary_table(self, index: int) -> tuple[float, int, int, bool]:
        """Return what tells tables of angles apart: angle, width, size of a head, and whether it is stretched."""
        text, head = self.text, self.attention(index).key_size
        thetas = text.sequence("rope_theta") if isinstance(text.any("rope_theta"), list) else []
        theta = self._of_layer(thetas, index) if thetas else text.number("rope_theta")
        parts = text.sequence("partial_rotary_factors") if "partial_rotary_factors" in text else []
        rotary = int(head * (self._of_layer(parts, index) if parts else 1.0))
        only = text.sequence("yarn_only_types") if "yarn_only_types" in text else []
        stretched = "rope_scaling" in text and (not only or self.kind(index) in only)
        return float(theta), rotary, head, stretched


ADAPTER = Adapter("step", 1, (TEXT, VISION), plan)
