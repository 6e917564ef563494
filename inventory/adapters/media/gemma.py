"""Gemma 3 with SigLIP: images of one size, pooled to a fixed number of rows.

Source: vLLM 0.32 ``model_executor/models/gemma3_mm.py``, ``siglip.py``.
"""

from __future__ import annotations

from vstate.inventory.adapters.decoder import element_bytes
from vstate.inventory.adapters.media.encoder import Encoder, encoder_share, encoder_weights
from vstate.inventory.adapters.media.siglip import siglip_elements
from vstate.inventory.adapters.plan import MediaRules
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Context

POSITION_BYTES = 8
"""Each position has its number in a buffer of 64-bit integers."""


def encoder(reader: ConfigReader, context: Context) -> Encoder:
    """Say what the encoder of a model with this configuration is.

    Raises:
        VstateError: A field is missing, or the heads cannot be shared by the ranks.
    """
    vision, width = reader.part("vision_config"), element_bytes(context)
    positions = (vision.integer("image_size") // vision.integer("patch_size")) ** 2
    tower = siglip_elements(vision, encoder_share(context, reader.model), positions)
    hidden = vision.integer("hidden_size")
    projector = hidden * reader.part("text_config").integer("hidden_size") + hidden
    weights = encoder_weights(tower * width + positions * POSITION_BYTES, projector * width)
    return Encoder(weights, MediaRules())
