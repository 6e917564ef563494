"""Pieces that most decoders are made of, in bytes of one rank: attention, norms, rotary tables, feed-forward, head."""

from __future__ import annotations

import json
from dataclasses import dataclass

from vstate.inventory.adapters.plan import AttentionLayer, Kernel, RotaryTable
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Context
from vstate.inventory.adapters.weights import Share
from vstate.inventory.dtypes import cache_dtype, dtype_bytes
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import Owner, StateClass

PLAIN_ROTARY = ("default", "llama3", "yarn")
"""Kinds of angles whose tables have a row per position; that of ``yarn`` as many as it stretches to."""
SCALE_BYTES = 16
"""Scales of query, key, value and probability, float32, that each attention layer has as buffers."""


@dataclass(frozen=True)
class Attention:
    """Attention of one layer, whole: a rank's share is taken where it is counted.

    Attributes:
        heads: Query heads.
        kv_heads: Key-value heads.
        key_size: Elements of a query or key head.
        value_size: Elements of a value head.
        window_tokens: Sliding window; 0 for none.
    """

    heads: int
    kv_heads: int
    key_size: int
    value_size: int
    window_tokens: int = 0

    @classmethod
    def read(cls, reader: ConfigReader) -> Attention:
        """Read the fields under their usual names.

        Raises:
            VstateError: One is missing.
        """
        heads = reader.integer("num_attention_heads")
        head = reader.integer("head_dim") if "head_dim" in reader else reader.integer("hidden_size") // heads
        kv_heads = reader.integer("num_key_value_heads") if "num_key_value_heads" in reader else heads
        return cls(heads, kv_heads, head, head)

    def layer(self, name: str, context: Context, owner: Owner = Owner.TARGET) -> AttentionLayer:
        """Return the state that the layer called ``name`` keeps."""
        return AttentionLayer(
            name=name,
            state_class=StateClass.SLIDING_KV if self.window_tokens else StateClass.FULL_KV,
            heads=Share(context.ranks).kv_heads(self.kv_heads),
            key_size=self.key_size,
            value_size=self.value_size,
            dtype=cache_dtype(context.settings.kv_cache_dtype, context.dtype),
            owner=owner,
            window_tokens=self.window_tokens,
            kernel=Kernel.ATTENTION if self.key_size == self.value_size else Kernel.UNEQUAL,
        )

    def weight_bytes(
        self, hidden: int, share: Share, width: int, *, bias: bool = False, out_bias: bool = False, norms: bool = False
    ) -> int:
        """Return the bytes of the projections, the scales, and norms of a query and a key head where there are any.

        Args:
            hidden: Width of the model.
            share: The rank.
            width: Bytes of one element.
            bias: Whether the projection to queries, keys and values has one.
            out_bias: Whether the projection back has one.
            norms: Whether heads are normed.
        """
        elements = share.queries_keys_values(
            hidden, self.heads, self.kv_heads, self.key_size, self.value_size, bias=bias
        )
        elements += share.row(self.heads * self.value_size, hidden, bias=out_bias)
        elements += 2 * self.key_size if norms else 0
        return elements * width + SCALE_BYTES


def rotary_bytes(positions: int, rotary: int, width: int) -> int:
    """Return the bytes of one table of cosines and sines; layers with the same parameters share one (``get_rope``)."""
    return positions * rotary * width


def rotary_table(reader: ConfigReader, head: int, context: Context, *, turned: float = 1.0) -> RotaryTable:
    """Return the table of a model whose layers all turn their heads by the same angles.

    Args:
        reader: The part of the configuration that says the angles.
        head: Size of a head.
        context: What the engine is started with.
        turned: Share of a head that is turned where the configuration does not say.

    Raises:
        VstateError: The angles are stretched in a way whose table has another length.
    """
    said = reader.any("rope_parameters")
    rope = said if isinstance(said, dict) else reader.any("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in PLAIN_ROTARY:
        raise VstateError(
            f"{reader.model}: angles of the kind {kind!r} are not known; known are {', '.join(PLAIN_ROTARY)}"
        )
    theta = rope.get("rope_theta", reader.any("rope_theta"))
    partial = rope.get("partial_rotary_factor", reader.get("partial_rotary_factor", turned))
    positions, rotary = reader.integer("max_position_embeddings"), int(head * partial)
    if kind == "yarn":
        positions = int(rope["original_max_position_embeddings"] * rope["factor"])
    scaling = {name: value for name, value in rope.items() if name not in ("rope_theta", "type", "rope_type")}
    parameters = json.dumps([theta, kind, scaling], sort_keys=True)
    return RotaryTable(head, rotary, positions, parameters, rotary_bytes(positions, rotary, element_bytes(context)))


def embedding_bytes(reader: ConfigReader, hidden: int, share: Share, width: int, *, tied: bool) -> int:
    """Return the bytes of the embedding, and of the head where it is not the same."""
    once = share.vocabulary(reader.integer("vocab_size"), hidden) * width
    return once if tied else 2 * once


def element_bytes(context: Context) -> int:
    """Return the bytes of one element of the model."""
    return dtype_bytes(context.dtype)


def refuse_quantized(reader: ConfigReader) -> None:
    """Refuse a checkpoint whose weights are quantized: elements are counted in the model's own type.

    Raises:
        VstateError: They are.
    """
    if "quantization_config" in reader:
        raise VstateError(f"{reader.model}: quantized weights are not counted; take quantization_config out")
