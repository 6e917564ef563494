"""LFM2-VL with SigLIP2: images in one tile or in several with a thumbnail.

Sources: vLLM 0.32 ``model_executor/models/lfm2_vl.py``, ``lfm2_siglip2.py``; transformers
``models/lfm2_vl/image_processing_lfm2_vl.py``.
"""

from __future__ import annotations

from vstate.inventory.adapters.decoder import element_bytes
from vstate.inventory.adapters.media.encoder import Encoder, encoder_share, encoder_weights, layer_norm, linear
from vstate.inventory.adapters.media.siglip import siglip_elements
from vstate.inventory.adapters.plan import MediaRules
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Context


def encoder(reader: ConfigReader, context: Context) -> Encoder:
    """Say what the encoder of a model with this configuration is.

    Raises:
        VstateError: A field is missing, or the heads cannot be shared by the ranks.
    """
    vision, width = reader.part("vision_config"), element_bytes(context)
    tower = siglip_elements(vision, encoder_share(context, reader.model), vision.get("num_patches", 256))
    return Encoder(encoder_weights(tower * width, _projector_elements(reader, vision) * width), MediaRules())


def _projector_elements(reader: ConfigReader, vision: ConfigReader) -> int:
    inputs = vision.integer("hidden_size") * reader.get("downsample_factor", 2) ** 2
    inner, out = reader.integer("projector_hidden_size"), reader.part("text_config").integer("hidden_size")
    bias = reader.get("projector_bias", True)
    norm = layer_norm(inputs) if reader.get("projector_use_layernorm", True) else 0
    return norm + linear(inputs, inner, bias=bias) + linear(inner, out, bias=bias)
