"""Reads the processor's files of a model, which lie beside its configuration.

Sources: transformers ``image_processing_base.py``, ``video_processing_utils.py`` (which file wins); vLLM 0.32
``model_executor/layers/fusion/mm_input_norm.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose
from typing import Any

from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Context
from vstate.schemas.errors import VstateError

PROCESSOR = "processor_config.json"
IMAGES = "preprocessor_config.json"
VIDEOS = "video_preprocessor_config.json"
NORM_FIELDS = ("do_normalize", "do_rescale", "image_mean", "image_std")
SCALE_BYTES = 4
"""Scales and shifts of pixels are float32."""


def image_processor(context: Context, model: str) -> ConfigReader:
    """Return what is said of the image processor; nothing where there is no file."""
    return _first(context, model, ((PROCESSOR, "image_processor"), (IMAGES, "")))


def video_processor(context: Context, model: str) -> ConfigReader:
    """Return what is said of the video processor, which is what is said of images where it has no file."""
    return _first(context, model, ((PROCESSOR, "video_processor"), (VIDEOS, ""), (IMAGES, "")))


def processor(context: Context, model: str) -> ConfigReader:
    """Return what is said of the processor as a whole."""
    return _first(context, model, ((PROCESSOR, ""),))


def device_norm_bytes(context: Context) -> int:
    """Return the bytes of scales and shifts that a model keeps to norm pixels on the device (``build_mm_input_norm``).

    Raises:
        VstateError: Pixels are to be normed and nothing says how.
    """
    if not context.settings.mm_device_do_normalize:
        return 0
    files = context.settings.processor
    said: Mapping[str, Any] = next(
        (files[name] for name in (PROCESSOR, IMAGES) if "processor_class" in _of(name, files)), {}
    )
    said = said.get("image_processor", said)
    if not any(field in said for field in NORM_FIELDS):
        said = _of(IMAGES, files)
    stated = "image_mean" in said and "image_std" in said
    rescale = said.get("rescale_factor", 1 / 255) if said.get("do_rescale", stated) else 1.0
    means, deviations = [0.0] * 3, [1.0] * 3
    if said.get("do_normalize", stated):
        if not stated:
            raise VstateError(f"{IMAGES} says to normalize and gives no image_mean and image_std; state them")
        means, deviations = said["image_mean"], said["image_std"]
    same = all(
        isclose(rescale / deviation, 1.0, rel_tol=1e-5, abs_tol=1e-8) and isclose(mean / deviation, 0.0, abs_tol=1e-8)
        for mean, deviation in zip(means, deviations, strict=True)
    )
    return 0 if same else 2 * len(means) * SCALE_BYTES


def _of(name: str, files: Mapping[str, Any]) -> Mapping[str, Any]:
    said = files.get(name, {})
    if not isinstance(said, Mapping):
        raise VstateError(f"{name} holds no object of JSON; fetch the model's processor again")
    return said


def _first(context: Context, model: str, places: tuple[tuple[str, str], ...]) -> ConfigReader:
    files = context.settings.processor
    for name, part in places:
        if name in files and (not part or part in _of(name, files)):
            reader = ConfigReader(_of(name, files), model, f"{name}: ")
            return reader.part(part) if part else reader
    return ConfigReader({}, model, f"{places[-1][0]}: ")
