"""Counts elements of one rank's share of weights, as vLLM's parallel layers cut them.

Source: vLLM 0.32 ``model_executor/layers/linear.py`` (columns and rows are cut, key-value heads are repeated where
there are fewer than ranks), ``vocab_parallel_embedding.py`` (rows padded to 64), ``fused_moe/layer.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from vstate.schemas.errors import VstateError

VOCABULARY_MULTIPLE = 64
"""``DEFAULT_VOCAB_PADDING_SIZE``."""


@dataclass(frozen=True)
class Share:
    """One of ``ranks`` ranks that share a model.

    Attributes:
        ranks: Tensor-parallel ranks.
        model: How errors name the model.
    """

    ranks: int
    model: str = ""

    def of(self, count: int, what: str) -> int:
        """Return a rank's part of ``count``.

        Raises:
            VstateError: It cannot be divided; ``what`` names it.
        """
        if count % self.ranks:
            raise VstateError(f"{self.model}: {count} {what} cannot be shared by {self.ranks} tensor-parallel ranks")
        return count // self.ranks

    def kv_heads(self, heads: int) -> int:
        """Return a rank's key-value heads; where there are fewer than ranks, each has one and some are repeated."""
        return self.of(heads, "key-value heads") if heads >= self.ranks else 1

    def column(self, inputs: int, outputs: int, *, bias: bool = False) -> int:
        """Return the elements of a linear layer whose outputs are cut; the bias is cut with them."""
        return self.of(outputs, "outputs") * (inputs + bias)

    def row(self, inputs: int, outputs: int, *, bias: bool = False) -> int:
        """Return the elements of a linear layer whose inputs are cut; the bias is whole on every rank."""
        return self.of(inputs, "inputs") * outputs + outputs * bias

    def queries_keys_values(
        self, hidden: int, heads: int, kv_heads: int, key_size: int, value_size: int, *, bias: bool = False
    ) -> int:
        """Return the elements of one projection to queries, keys and values."""
        local = self.of(heads, "attention heads") * key_size + self.kv_heads(kv_heads) * (key_size + value_size)
        return local * (hidden + bias)

    def vocabulary(self, tokens: int, width: int) -> int:
        """Return the elements of an embedding or a head, whose rows are padded and cut."""
        padded = -(-tokens // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
        return self.of(padded, "rows of the vocabulary") * width

    def gated_mlp(self, hidden: int, inner: int, *, bias: bool = False) -> int:
        """Return the elements of a feed-forward with gate, up and down projection."""
        return self.column(hidden, 2 * inner, bias=bias) + self.row(inner, hidden, bias=bias)

    def plain_mlp(self, hidden: int, inner: int, *, bias: bool = False) -> int:
        """Return the elements of a feed-forward with one projection up and one down."""
        return self.column(hidden, inner, bias=bias) + self.row(inner, hidden, bias=bias)
