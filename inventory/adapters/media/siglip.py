"""The layers that SigLIP and SigLIP2 towers share, in elements of one rank."""

from __future__ import annotations

from vstate.inventory.adapters.media.encoder import layer_norm, linear, transformer_block
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.weights import Share


def siglip_elements(vision: ConfigReader, share: Share, positions: int) -> int:
    """Return the elements of a tower without a pooling head: patches, positions, layers, a last norm.

    Source: vLLM 0.32 ``SiglipVisionTransformer`` (``model_executor/models/siglip.py``), ``Siglip2VisionTransformer``
    (``lfm2_siglip2.py``).

    Args:
        vision: The tower's configuration.
        share: The rank.
        positions: Positions that have an embedding.
    """
    hidden = vision.integer("hidden_size")
    patch = vision.get("num_channels", 3) * vision.integer("patch_size") ** 2
    block = transformer_block(share, hidden, vision.integer("num_attention_heads"), vision.integer("intermediate_size"))
    layers = vision.integer("num_hidden_layers") * block
    return linear(patch, hidden) + positions * hidden + layers + layer_norm(hidden)
