"""What a family's media module says: the weights of its encoder on one rank, and how media expand."""

from __future__ import annotations

from dataclasses import dataclass

from vstate.inventory.adapters.plan import MediaRules, Weights
from vstate.inventory.adapters.registry import Context
from vstate.inventory.adapters.weights import Share
from vstate.schemas.vocabulary import Owner
from vstate.schemas.workload import MediaKind


@dataclass(frozen=True)
class Encoder:
    """An encoder of media.

    Attributes:
        weights: Weights of its tower and of its projector, where vLLM tells that apart.
        rules: How media expand.
    """

    weights: tuple[Weights, ...]
    rules: MediaRules


def encoder_weights(tower: int, projector: int = 0) -> tuple[Weights, ...]:
    """Return the weights of an encoder, ``tower`` and ``projector`` bytes of one rank.

    What vLLM calls the connector is the projector (``get_mm_mapping``); a model without that mapping has it all in
    its tower.
    """
    parts = (("tower", tower), ("projector", projector))
    return tuple(Weights(Owner.ENCODER, part, size) for part, size in parts if size)


def encoder_share(context: Context, model: str, *, whole_in_data_mode: bool = False) -> Share:
    """Return the rank that an encoder's parallel layers are cut for (``is_vit_use_data_parallel``).

    Args:
        context: What the engine is started with.
        model: How errors name the model.
        whole_in_data_mode: Whether the model can share items over ranks instead (``supports_encoder_tp_data``).
    """
    whole = whole_in_data_mode and context.settings.mm_encoder_tp_mode == "data"
    return Share(1 if whole else context.ranks, model)


def takes(context: Context, *kinds: MediaKind) -> bool:
    """Say whether a request may have media of any of the kinds; a tower of none of them is not built."""
    limits = context.settings.limit_mm_per_prompt or {}
    return any(limits.get(kind, 1) > 0 for kind in kinds)


def layer_norm(width: int) -> int:
    """Return the elements of a layer norm: scales and shifts."""
    return 2 * width


def linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    """Return the elements of a linear layer, or of a convolution over ``inputs`` elements, whole on every rank."""
    return outputs * (inputs + bias)


def attention(share: Share, width: int, heads: int, *, qkv_bias: bool = True) -> int:
    """Return the elements of self-attention with as many key-value heads as heads, and a bias on its way out."""
    size = width // heads
    projections = share.queries_keys_values(width, heads, heads, size, size, bias=qkv_bias)
    return projections + share.row(heads * size, width, bias=True)


def transformer_block(share: Share, width: int, heads: int, inner: int) -> int:
    """Return the elements of a block of a vision transformer: attention, feed-forward, two layer norms, biases."""
    return attention(share, width, heads) + share.plain_mlp(width, inner, bias=True) + 2 * layer_norm(width)
