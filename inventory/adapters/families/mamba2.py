"""Mamba2 with attention and feed-forward layers in between: Nemotron-H, Nemotron 3 Nano, Super, Ultra and Omni.

Sources: vLLM 0.32 ``model_executor/models/nemotron_h.py``, ``nemotron_h_mtp.py``, ``nano_nemotron_vl.py``;
``layers/mamba/mamba_mixer2.py``; ``MambaStateShapeCalculator.mamba2_state_shape``; ``models/config.py``.
"""

from __future__ import annotations

from vstate.inventory.adapters.decoder import Attention, element_bytes, embedding_bytes
from vstate.inventory.adapters.experts import FLOAT_BYTES, Experts
from vstate.inventory.adapters.mamba import Mamba2
from vstate.inventory.adapters.media import nemotron
from vstate.inventory.adapters.plan import Layer, ModelPlan, StateLayer, Weights
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Adapter, Context
from vstate.inventory.adapters.states import AUTO, recurrent_dtype
from vstate.inventory.adapters.weights import Share
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import Owner

TEXT = "NemotronHForCausalLM"
VISION = ("NemotronH_Nano_VL_V2", "NemotronH_Nano_Omni_Reasoning_V3")
LETTERS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
NAMES = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "attention": "attention",
    "full_attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}


def plan(reader: ConfigReader, context: Context) -> ModelPlan:
    """Say what a model of this family keeps.

    Raises:
        VstateError: A layer is of an unknown type.
    """
    model = _Model(reader, context)
    encoder = nemotron.encoder(reader, context) if reader.model in VISION else None
    drafting = context.settings.drafting
    native = model.draft_kinds() if drafting is not None and drafting.method == "mtp" else []
    layers = model.layers(model.kinds, f"{model.prefix}model.layers", Owner.TARGET)
    layers += model.layers(native, "mtp.layers", Owner.DRAFT)
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
        draft_modules=model.draft_steps if native else 0,
    )


class _Model:
    """The language model, read once."""

    def __init__(self, reader: ConfigReader, context: Context) -> None:
        text = reader.part("text_config", "llm_config") if reader.model in VISION else reader
        self.text, self.context = text, context
        self.share, self.width = Share(context.ranks, reader.model), element_bytes(context)
        self.attention = Attention.read(text)
        self.hidden = text.integer("hidden_size")
        self.prefix = "language_model." if reader.model in VISION else ""
        self.mamba = Mamba2(
            hidden=self.hidden,
            heads=text.integer("mamba_num_heads"),
            head=text.integer("mamba_head_dim"),
            groups=text.integer("n_groups"),
            state=text.integer("ssm_state_size"),
            kernel=text.integer("conv_kernel"),
            kernel_bias=text.get("use_conv_bias", True),
            bias=text.get("use_bias", False),
        )
        self.state_dtype = recurrent_dtype(context, _said_dtype(reader, text))
        self.kinds = _kinds(text, "hybrid_override_pattern", "layers_block_type")
        tied = text.get("tie_word_embeddings", False)
        self.embeddings = embedding_bytes(text, self.hidden, self.share, self.width, tied=tied)

    @property
    def draft_steps(self) -> int:
        """Modules of the native draft, 0 where the model has none."""
        return self.text.get("num_nextn_predict_layers", 0)

    def draft_kinds(self) -> list[str]:
        """Return the types of the native draft's layers, all its modules in order."""
        if not self.draft_steps:
            return []
        return _kinds(self.text, "mtp_hybrid_override_pattern", "mtp_layers_block_type") * self.draft_steps

    def layers(self, kinds: list[str], place: str, owner: Owner) -> list[Layer]:
        """Return those layers that keep state, in order."""
        found: list[Layer] = []
        for index, kind in enumerate(kinds):
            name = f"{place}.{index}.mixer"
            if kind == "mamba":
                parts = self.mamba.parts(self.share, self.context, self.state_dtype)
                found.append(StateLayer(name, parts, owner, checkpoint_blocks=1))
            elif kind == "attention":
                found.append(self.attention.layer(f"{name}.attn", self.context, owner))
        return found

    def weight_bytes(self) -> int:
        """Return the target's bytes on one rank."""
        return self.embeddings + self.hidden * self.width + self._layer_bytes(self.kinds)

    def draft_bytes(self, kinds: list[str]) -> int:
        """Return the draft's own bytes: per module a projection of two rows to one, three norms, and its layers."""
        joined = (self.share.column(2 * self.hidden, self.hidden) + 3 * self.hidden) * self.width
        return self.draft_steps * joined + self._layer_bytes(kinds)

    def _layer_bytes(self, kinds: list[str]) -> int:
        total = 0
        for kind in kinds:
            total += self.hidden * self.width
            if kind == "mamba":
                total += self.mamba.weight_bytes(self.share, self.width)
            elif kind == "attention":
                bias = self.text.get("attention_bias", False)
                total += self.attention.weight_bytes(self.hidden, self.share, self.width, bias=bias, out_bias=bias)
            elif kind == "mlp":
                total += self._plain_bytes(self.text.integer("intermediate_size"))
            else:
                total += self._expert_bytes()
        return total

    def _plain_bytes(self, inner: int) -> int:
        return self.share.plain_mlp(self.hidden, inner, bias=self.text.get("mlp_bias", False)) * self.width

    def _expert_bytes(self) -> int:
        """Return the bytes of a mixture: experts without a gate, perhaps behind a projection to fewer dimensions."""
        text, latent = self.text, self.text.get("moe_latent_size", 0)
        width = latent or self.hidden
        count, inner = text.integer("n_routed_experts"), text.integer("moe_intermediate_size")
        experts = Experts(count, width, inner, gated=False, correction=True)
        # The router's weights are float32.
        total = experts.bytes(self.share, self.width) + experts.router_bytes(FLOAT_BYTES, self.hidden)
        total += 2 * self.hidden * latent * self.width
        shared = text.get("n_shared_experts", 0)
        if shared:
            total += self._plain_bytes(shared * text.integer("moe_shared_expert_intermediate_size"))
        return total


def _said_dtype(reader: ConfigReader, text: ConfigReader) -> str:
    """Return what the model's own rule says of recurrent states; only two architectures have one."""
    if reader.model in (TEXT, VISION[0]):
        return text.get("mamba_ssm_cache_dtype", "float32")
    return AUTO


def _kinds(text: ConfigReader, pattern: str, types: str) -> list[str]:
    if pattern in text:
        letters = text.text(pattern)
        known, said = LETTERS, list(letters)
    else:
        known, said = NAMES, text.sequence(types)
    for index, kind in enumerate(said):
        if kind not in known:
            raise VstateError(f"{text.model}: layer {index} is of the unknown type {kind!r}")
    return [known[kind] for kind in said]


ADAPTER = Adapter("mamba2", 1, (TEXT, *VISION), plan)
