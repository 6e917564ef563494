"""Latent attention (MLA): DeepSeek V2 and V3, and V3.2 with a sparse index; with experts and a native draft.

Sources: vLLM 0.32 ``model_executor/models/deepseek_v2.py``, ``deepseek_mtp.py``; ``MLAAttentionSpec``;
``DeepseekV32IndexerCache`` (one byte for each element of an index key, and a float32 scale for each 128 of them).
"""

from __future__ import annotations

from vstate.inventory.adapters.decoder import SCALE_BYTES, element_bytes, embedding_bytes, rotary_bytes
from vstate.inventory.adapters.experts import FLOAT_BYTES, Experts
from vstate.inventory.adapters.plan import AttentionLayer, Kernel, ModelPlan, Weights
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Adapter, Context
from vstate.inventory.adapters.weights import Share
from vstate.inventory.dtypes import cache_dtype
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import Owner, StateClass

SPARSE = "DeepseekV32ForCausalLM"
PLAIN = ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM")
INDEX_GROUP = 128
"""Elements of an index key that share a scale."""


def plan(reader: ConfigReader, context: Context) -> ModelPlan:
    """Say what a model of this family keeps.

    Raises:
        VstateError: The cache is asked for in a type whose latent rows are packed.
    """
    if context.settings.kv_cache_dtype not in ("auto", "bfloat16", "float16"):
        raise VstateError(
            f"{reader.model}: a latent cache of type {context.settings.kv_cache_dtype} has rows of its own layout, "
            "which are not known here; leave it auto"
        )
    model = _Model(reader, context)
    layers = [layer for index in range(model.count) for layer in model.layers(index, Owner.TARGET)]
    weights = [Weights(Owner.TARGET, "", model.weight_bytes())]
    drafting = context.settings.drafting
    modules = reader.get("num_nextn_predict_layers", 0) if drafting and drafting.method == "mtp" else 0
    for index in range(model.count, model.count + modules):
        layers += model.layers(index, Owner.DRAFT)
    if modules:
        # Embedding and heads become the target's when weights are loaded; tables of angles are the target's already.
        weights.append(Weights(Owner.DRAFT, "", modules * model.draft_bytes(), (modules + 1) * model.embedding))
    return ModelPlan(
        layers=tuple(layers),
        weights=tuple(weights),
        max_positions=reader.integer("max_position_embeddings"),
        hidden_size=model.hidden,
        block_heads=1,
        block_head_size=model.row,
        draft_modules=modules,
    )


class _Model:
    """The model, read once."""

    def __init__(self, reader: ConfigReader, context: Context) -> None:
        self.reader, self.context = reader, context
        self.share, self.width = Share(context.ranks, reader.model), element_bytes(context)
        self.hidden, self.count = reader.integer("hidden_size"), reader.integer("num_hidden_layers")
        self.heads = reader.integer("num_attention_heads")
        self.latent, self.rotary = reader.integer("kv_lora_rank"), reader.integer("qk_rope_head_dim")
        self.row = self.latent + self.rotary
        self.plain, self.value = reader.integer("qk_nope_head_dim"), reader.integer("v_head_dim")
        self.sparse = reader.model == SPARSE
        self.index = reader.integer("index_head_dim") if self.sparse else 0
        self.embedding = embedding_bytes(reader, self.hidden, self.share, self.width, tied=True)

    def layers(self, index: int, owner: Owner) -> list[AttentionLayer]:
        """Return what a layer keeps: its index first, where it has one, then the latent."""
        place = f"model.layers.{index}.self_attn"
        dtype = cache_dtype(self.context.settings.kv_cache_dtype, self.context.dtype)
        kernel = Kernel.SPARSE_LATENT if self.sparse else Kernel.LATENT
        latent = AttentionLayer(f"{place}.attn", StateClass.LATENT_KV, 1, self.row, 0, dtype, owner, kernel=kernel)
        if not self.sparse:
            return [latent]
        key = self.index + FLOAT_BYTES * self.index // INDEX_GROUP
        name = f"{place}.indexer.k_cache"
        return [AttentionLayer(name, StateClass.SPARSE_INDEX, 1, key, 0, "uint8", owner, kernel=Kernel.INDEX), latent]

    def weight_bytes(self) -> int:
        """Return the target's bytes on one rank."""
        tied = self.reader.get("tie_word_embeddings", False)
        total = embedding_bytes(self.reader, self.hidden, self.share, self.width, tied=tied)
        total += self.hidden * self.width
        for index in range(self.count):
            total += self._attention_bytes() + self._feed_forward_bytes(index) + 2 * self.hidden * self.width
        # Queries and the index turn neighbours and halves, so that each has a table.
        return total + (2 if self.sparse else 1) * rotary_bytes(self._positions(), self.rotary, self.width)

    def draft_bytes(self) -> int:
        """Return the own bytes of a module of the draft: a projection of two rows to one, a layer, five norms."""
        joined = (2 * self.hidden * self.hidden + 5 * self.hidden) * self.width
        return joined + self._attention_bytes() + self._feed_forward_bytes(self.count)

    def _positions(self) -> int:
        rope = self.reader.part("rope_parameters", "rope_scaling")
        if "factor" not in rope:
            return self.reader.integer("max_position_embeddings")
        return int(rope.integer("original_max_position_embeddings") * rope.number("factor"))

    def _attention_bytes(self) -> int:
        """Return the bytes of a layer of attention.

        Projections to the latents of query and key, whole on every rank; from them to heads; two norms; the projection
        back; and the index: a query per index head from the latent, a key and a weight per head from the input, a norm
        of the key as float32.
        """
        reader, share, hidden = self.reader, self.share, self.hidden
        query_head = self.plain + self.rotary
        elements = hidden * self.row + self.latent
        if "q_lora_rank" in reader:
            query = reader.integer("q_lora_rank")
            elements += hidden * query + query + share.column(query, self.heads * query_head)
        else:
            elements += share.column(hidden, self.heads * query_head)
        elements += share.column(self.latent, self.heads * (self.plain + self.value))
        elements += share.row(self.heads * self.value, hidden)
        total = elements * self.width + SCALE_BYTES
        if self.sparse:
            heads = reader.integer("index_n_heads")
            indexing = reader.integer("q_lora_rank") * heads * self.index + hidden * (self.index + heads)
            total += indexing * self.width + 2 * self.index * FLOAT_BYTES
        return total

    def _feed_forward_bytes(self, index: int) -> int:
        reader, share, width = self.reader, self.share, self.width
        mixed = reader.get("n_routed_experts", 0)
        step = reader.get("moe_layer_freq", 1)
        if not mixed or index < reader.get("first_k_dense_replace", 0) or index % step:
            return share.gated_mlp(self.hidden, reader.integer("intermediate_size")) * width
        inner = reader.integer("moe_intermediate_size")
        corrected = reader.get("topk_method", "greedy") == "noaux_tc"
        experts = Experts(mixed, self.hidden, inner, correction=corrected)
        total = experts.bytes(share, width) + experts.router_bytes(width)
        shared = reader.get("n_shared_experts", 0)
        return total + (share.gated_mlp(self.hidden, shared * inner) * width if shared else 0)


ADAPTER = Adapter("latent", 1, (*PLAIN, SPARSE), plan)
