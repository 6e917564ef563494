"""The C-RADIO tower: a vision transformer whose dimensions follow from the name of its backbone.

Source: vLLM 0.32 ``model_executor/models/radio.py``, ``intern_vit.py``, ``transformers_utils/configs/radio.py``.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from vstate.inventory.adapters.media.encoder import attention, layer_norm, linear
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.weights import Share
from vstate.schemas.errors import VstateError

CHANNELS = 3
INDEX_BYTES = 8
"""The places of the summaries stand in a buffer of 64-bit integers."""


class Backbone(NamedTuple):
    """Dimensions of a backbone."""

    hidden: int
    layers: int
    heads: int
    inner: int


BACKBONES = {
    "vit_small_patch16_224": Backbone(384, 12, 6, 1536),
    "vit_base_patch16_224": Backbone(768, 12, 12, 3072),
    "vit_large_patch16_224": Backbone(1024, 24, 16, 4096),
    "vit_huge_patch16_224": Backbone(1280, 32, 16, 5120),
}
"""``VIT_TIMM_DIM_BY_NAME``."""
FIXED = (("qk_normalization", False), ("norm_type", "layer_norm"))
"""Choices of ``RadioConfig`` that no published tower makes otherwise."""


def radio_bytes(vision: ConfigReader, share: Share, width: int) -> int:
    """Return the bytes of the tower on one rank.

    Args:
        vision: The tower's configuration, with the backbone's name and its teachers under ``args``.
        share: The rank.
        width: Bytes of one element.

    Raises:
        VstateError: The backbone is unknown, or a field is missing.
    """
    arguments = vision.part("args")
    backbone = _backbone(arguments)
    teachers = arguments.sequence("teachers") if "teachers" in arguments else []
    elements = _patch_elements(vision, arguments, backbone.hidden, len({teacher["name"] for teacher in teachers}))
    elements += backbone.layers * _layer_elements(arguments, backbone, share)
    summaries = sum(bool(teacher.get("use_summary", True)) for teacher in teachers)
    return elements * width + summaries * INDEX_BYTES


def _backbone(arguments: ConfigReader) -> Backbone:
    name = arguments.text("model")
    if name not in BACKBONES:
        raise VstateError(f"{arguments.model}: {arguments.place}model is {name}; known are {', '.join(BACKBONES)}")
    for field, expected in FIXED:
        if arguments.any(field) not in (None, expected):
            raise VstateError(f"{arguments.model}: {arguments.place}{field} is not {expected}; register an adapter")
    return BACKBONES[name]


def _patch_elements(vision: ConfigReader, arguments: ConfigReader, hidden: int, teachers: int) -> int:
    """Return the elements of ``ViTPatchGenerator``: patches of images and of tubelets, positions, prefix tokens."""
    patch, frames = vision.get("patch_size", 16), vision.get("video_temporal_patch_size", 1)
    side = ceil(round(arguments.get("cpe_max_size", 2048) / patch) * patch / patch)
    pixels = CHANNELS * patch * patch
    embedders = linear(pixels, hidden, bias=False)
    embedders += linear(pixels * frames, hidden, bias=False) if frames > 1 else 0
    prefix = teachers if arguments.get("cls_token_per_teacher", False) else 1
    multiple = arguments.get("register_multiple", 0)
    prefix += multiple - prefix % multiple if multiple else 0
    return embedders + (side * side + prefix) * hidden


def _layer_elements(arguments: ConfigReader, backbone: Backbone, share: Share) -> int:
    """Return the elements of a layer: heads that the ranks cannot share are whole on each; two scales of residuals."""
    hidden = backbone.hidden
    heads = share if backbone.heads % share.ranks == 0 else Share(1, share.model)
    elements = attention(heads, hidden, backbone.heads, qkv_bias=arguments.get("qkv_bias", True))
    elements += share.plain_mlp(hidden, backbone.inner, bias=True)
    return elements + 2 * layer_norm(hidden) + 2 * hidden
