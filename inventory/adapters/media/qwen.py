"""Qwen3.5 and Qwen3.6 with vision: images and videos of merged patches.

Sources: vLLM 0.32 ``model_executor/models/qwen3_vl.py``, ``qwen2_vl.py``; transformers
``models/qwen2_vl/image_processing_qwen2_vl.py``, ``models/qwen3_vl/video_processing_qwen3_vl.py``.
"""

from __future__ import annotations

from vstate.inventory.adapters.decoder import element_bytes, rotary_bytes
from vstate.inventory.adapters.media.encoder import (
    Encoder,
    encoder_share,
    encoder_weights,
    layer_norm,
    linear,
    transformer_block,
)
from vstate.inventory.adapters.plan import MediaRules
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Context
from vstate.inventory.adapters.weights import Share

ROTARY_POSITIONS = 8192
"""Positions that the tower's rotary table is built for (``Qwen3_VisionTransformer``)."""


def encoder(reader: ConfigReader, context: Context) -> Encoder:
    """Say what the encoder of a model with this configuration is.

    Raises:
        VstateError: A field is missing, or the heads cannot be shared by the ranks.
    """
    vision = reader.part("vision_config")
    share, width = encoder_share(context, reader.model), element_bytes(context)
    tower, projector = _elements(vision, share)
    heads = vision.integer("num_heads")
    rotary = vision.integer("hidden_size") // heads // 2
    tower_bytes = tower * width + rotary_bytes(ROTARY_POSITIONS, rotary, width)
    return Encoder(encoder_weights(tower_bytes, projector * width), MediaRules())


def _elements(vision: ConfigReader, share: Share) -> tuple[int, int]:
    """Return the elements of the tower without its rotary table, and of the mergers."""
    hidden, merged = vision.integer("hidden_size"), vision.integer("spatial_merge_size") ** 2
    patch = vision.integer("in_channels") * vision.integer("temporal_patch_size") * vision.integer("patch_size") ** 2
    block = transformer_block(share, hidden, vision.integer("num_heads"), vision.integer("intermediate_size"))
    tower = linear(patch, hidden) + vision.integer("num_position_embeddings") * hidden + vision.integer("depth") * block
    inner, out = hidden * merged, vision.integer("out_hidden_size")
    merger = share.column(inner, inner, bias=True) + share.row(inner, out, bias=True)
    deep = len(vision.sequence("deepstack_visual_indexes")) if "deepstack_visual_indexes" in vision else 0
    return tower, merger + layer_norm(hidden) + deep * (merger + layer_norm(inner))
