"""Step-3.7 with a PE-G tower: a base image, and crops of larger ones.

Sources: vLLM 0.32 ``model_executor/models/step3p7.py``, ``step_vl.py``, ``step3_vl.py``,
``transformers_utils/processors/step3_vl.py``.
"""

from __future__ import annotations

from vstate.inventory.adapters.decoder import element_bytes
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
from vstate.schemas.errors import VstateError

CHANNELS = 3
ROTARY_BYTES = 4
"""Each block has a table of angles of its own, float32 whatever the model's type is."""


def encoder(reader: ConfigReader, context: Context) -> Encoder:
    """Say what the encoder of a model with this configuration is; vLLM counts its projector to the tower.

    Raises:
        VstateError: A field is missing, or the heads cannot be shared by the ranks.
    """
    vision, width = reader.part("vision_config"), element_bytes(context)
    share = encoder_share(context, reader.model)
    tower = _tower_elements(vision, share)
    projector = share.column(
        4 * vision.integer("width"),
        reader.part("text_config").integer("hidden_size"),
        bias=reader.get("projector_bias", True),
    )
    return Encoder(encoder_weights((tower + projector) * width + _rotary_bytes(vision)), MediaRules())


def _grid(vision: ConfigReader) -> int:
    """Return the patches along a side of the base image."""
    return vision.integer("image_size") // vision.integer("patch_size")


def _tower_elements(vision: ConfigReader, share: Share) -> int:
    """Return the elements of ``PerceptionEncoder`` and its two convolutions, without the tables of angles."""
    hidden, heads = vision.integer("width"), vision.integer("heads")
    block = transformer_block(share, hidden, heads, int(hidden * vision.number("mlp_ratio")))
    block += 2 * hidden if "ls_init_value" in vision else 0
    total = linear(CHANNELS * vision.integer("patch_size") ** 2, hidden, bias=False)
    total += vision.integer("layers") * block
    total += sum(layer_norm(hidden) for name in ("use_ln_pre", "use_ln_post") if vision.get(name, False))
    own = vision.get("use_cls_token", False)
    total += hidden * own
    total += (_grid(vision) ** 2 + own) * hidden if vision.get("use_abs_posemb", True) else 0
    downsampling = linear(9 * hidden, 2 * hidden) + linear(9 * 2 * hidden, 4 * hidden)
    return total + downsampling


def _rotary_bytes(vision: ConfigReader) -> int:
    """Return the bytes of the angles of all blocks: two halves of a head for each place of the grid."""
    if not vision.get("use_rope2d", True):
        raise VstateError(f"{vision.model}: {vision.place}use_rope2d is off, which vLLM does not build")
    size = vision.integer("width") // vision.integer("heads")
    places = _grid(vision) ** 2 + vision.get("use_cls_token", False)
    return vision.integer("layers") * places * 2 * (size // 2) * ROTARY_BYTES
