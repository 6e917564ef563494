"""MiMo-V2 Omni: images and videos of merged patches, sounds through codes.

Sources: vLLM 0.32 ``model_executor/models/mimo_v2_omni.py``, ``mimo_audio.py``,
``transformers_utils/processors/mimo_v2_omni.py``, ``transformers_utils/configs/mimo_v2_omni.py``.
"""

from __future__ import annotations

from vstate.inventory.adapters.decoder import element_bytes, rotary_bytes
from vstate.inventory.adapters.media.encoder import Encoder, encoder_share, encoder_weights, linear
from vstate.inventory.adapters.media.mimo_audio import audio_bytes
from vstate.inventory.adapters.plan import MediaRules
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Context
from vstate.inventory.adapters.weights import Share

ROTARY_POSITIONS = 8192
"""Positions that the tower's rotary table is built for (``MiMoVisionTransformer``)."""


def encoder(reader: ConfigReader, context: Context) -> Encoder:
    """Say what the encoder of a model with this configuration is; vLLM tells no projector apart.

    Raises:
        VstateError: A field is missing, or the heads cannot be shared by the ranks.
    """
    vision, width = reader.part("vision_config"), element_bytes(context)
    tower = _tower_elements(vision, encoder_share(context, reader.model)) * width
    tower += rotary_bytes(ROTARY_POSITIONS, vision.get("qk_channels", 64) // 2, width)
    if "audio_config" in reader:
        tower += audio_bytes(reader.part("audio_config"), width)
    return Encoder(encoder_weights(tower), MediaRules())


def _tower_elements(vision: ConfigReader, share: Share) -> int:
    """Return the elements of ``MiMoVisionTransformer`` without its rotary table."""
    hidden, merged = vision.integer("hidden_size"), vision.get("spatial_merge_size", 2) ** 2
    frames, side = vision.get("temporal_patch_size", 2), vision.get("patch_size", 16)
    patch = linear(vision.get("in_channels", 3) * frames * side**2, hidden, bias=False)
    inner = hidden * merged
    merger = hidden + share.column(inner, inner) + share.row(inner, vision.get("out_hidden_size", 2048))
    return patch + vision.integer("depth") * _block_elements(vision, share) + _sinks(vision) + merger


def _block_elements(vision: ConfigReader, share: Share) -> int:
    hidden, heads = vision.integer("hidden_size"), vision.integer("num_heads")
    keys, values = vision.get("qk_channels", 64), vision.get("kv_channels", 64)
    kv_heads = vision.integer("num_key_value_heads")
    elements = share.queries_keys_values(hidden, heads, kv_heads, keys, values, bias=True)
    elements += share.row(heads * values, hidden, bias=True)
    return elements + share.gated_mlp(hidden, vision.integer("intermediate_size"), bias=True) + 2 * hidden


def _sinks(vision: ConfigReader) -> int:
    """Return the elements of the sinks: one for each head of a block with a window, whole on every rank."""
    if not vision.get("use_sink", False):
        return 0
    whole = {index for index in vision.sequence("fullatt_block_indexes") if index < vision.integer("depth")}
    return (vision.integer("depth") - len(whole)) * vision.integer("num_heads")
