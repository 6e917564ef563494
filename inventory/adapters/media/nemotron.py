"""Nemotron Omni: images of any size or in tiles, videos of tubelets (C-RADIO), sounds (Parakeet).

Sources: vLLM 0.32 ``model_executor/models/nano_nemotron_vl.py``, ``transformers_utils/processors/nano_nemotron_vl.py``.
"""

from __future__ import annotations

from vstate.inventory.adapters.decoder import element_bytes
from vstate.inventory.adapters.media.encoder import Encoder, encoder_share, encoder_weights, layer_norm, linear
from vstate.inventory.adapters.media.parakeet import parakeet_bytes, parakeet_projector_elements
from vstate.inventory.adapters.media.radio import radio_bytes
from vstate.inventory.adapters.plan import MediaRules
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Context


def encoder(reader: ConfigReader, context: Context) -> Encoder:
    """Say what the encoder of a model with this configuration is.

    Raises:
        VstateError: A field is missing, or the backbone is unknown.
    """
    width = element_bytes(context)
    text = reader.part("text_config", "llm_config")
    tower = radio_bytes(reader.part("vision_config"), encoder_share(context, reader.model), width)
    projector = _projector_elements(reader, text)
    if "sound_config" in reader:
        sound = reader.part("sound_config")
        tower += parakeet_bytes(sound, width)
        projector += parakeet_projector_elements(sound, text.integer("hidden_size"))
    return Encoder(encoder_weights(tower, projector * width), MediaRules())


def _projector_elements(reader: ConfigReader, text: ConfigReader) -> int:
    """Return the elements of ``mlp1``, and of the norm before it that models with a native draft have."""
    vision = reader.integer("vit_hidden_size")
    inputs = vision * round(1 / reader.number("downsample_ratio")) ** 2
    inner = reader.integer("projector_hidden_size")
    elements = inputs + linear(inputs, inner, bias=False) + linear(inner, text.integer("hidden_size"), bias=False)
    return elements + (layer_norm(vision) if text.get("num_nextn_predict_layers", 0) else 0)
