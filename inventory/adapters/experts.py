"""Counts the weights of mixtures of experts on one rank, in bytes.

Source: vLLM 0.32 ``model_executor/layers/fused_moe`` (``w13_weight`` and ``w2_weight``, cut by ranks in the experts'
inner width), ``GateLinear`` (whole on every rank).
"""

from __future__ import annotations

from dataclasses import dataclass

from vstate.inventory.adapters.weights import Share

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Experts:
    """Routed experts of one layer, whole.

    Attributes:
        count: How many there are.
        hidden: Width that they read and write.
        inner: Inner width of one.
        gated: Whether each has a gate beside its projection up.
        correction: Whether the router corrects its scores by a float32 bias per expert.
        biased: Whether projections have biases.
    """

    count: int
    hidden: int
    inner: int
    gated: bool = True
    correction: bool = False
    biased: bool = False

    def router_bytes(self, width: int, router_hidden: int | None = None) -> int:
        """Return the bytes of the router, whose input may be wider than the experts'."""
        weights = self.count * (router_hidden or self.hidden) * width
        return weights + (self.count * FLOAT_BYTES if self.correction else 0)

    def bytes(self, share: Share, width: int) -> int:
        """Return the bytes of a rank's part of all experts, ``width`` bytes an element."""
        inner = share.of(self.inner, "inner elements of an expert")
        up, down = inner * (2 if self.gated else 1), inner
        elements = self.hidden * (up + down)
        if self.biased:
            elements += up + self.hidden
        return self.count * elements * width
