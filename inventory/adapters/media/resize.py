"""Sizes to which images and frames of merged patches are brought, within limits of pixels.

Sources: ``smart_resize`` of transformers ``models/qwen2_vl/image_processing_qwen2_vl.py`` and
``models/qwen3_vl/video_processing_qwen3_vl.py``; vLLM 0.32 ``Qwen2VLProcessingInfo.get_image_size_with_most_features``.
"""

from __future__ import annotations

from math import ceil, floor, isqrt, sqrt
from typing import NamedTuple

from vstate.schemas.errors import VstateError

LONGEST_RATIO = 200
"""Images that are longer than that in one direction are refused."""


class Size(NamedTuple):
    """A size in pixels."""

    width: int
    height: int


class Pixels(NamedTuple):
    """Least and most pixels of an image, or of all frames of a video."""

    least: int
    most: int


def check_ratio(width: float, height: float) -> None:
    """Refuse an image that is too long.

    Raises:
        VstateError: It is.
    """
    if max(width, height) / min(width, height) > LONGEST_RATIO:
        raise VstateError(
            f"an image of {width} by {height} pixels is over {LONGEST_RATIO} times as long as wide; crop it"
        )


def whole_units(size: Size, unit: int, least: int = 0) -> Size:
    """Return a size with each side at the nearest multiple of ``unit``, and at ``least`` or more."""
    return Size(*(max(least, round(side / unit) * unit) for side in size))


def fit(size: Size, near: Size, unit: int, limits: Pixels, *, frames: int = 1, counted_frames: int = 1) -> Size:
    """Return a size in whole units of ``unit`` pixels, of about the shape of ``size``, within the limits.

    Args:
        size: The size there is.
        near: What is returned where it is within the limits.
        unit: Pixels that a side is a multiple of.
        limits: Least and most pixels.
        frames: Frames that share the limits.
        counted_frames: What those frames are rounded to where ``near`` is compared with the limits.
    """
    content = frames * size.height * size.width
    if counted_frames * near.height * near.width > limits.most:
        shrink = sqrt(content / limits.most)
        return Size(*(max(unit, floor(side / shrink / unit) * unit) for side in size))
    if counted_frames * near.height * near.width < limits.least:
        grow = sqrt(limits.least / content)
        return Size(*(ceil(side * grow / unit) * unit for side in size))
    return near


def fit_image(size: Size, unit: int, limits: Pixels) -> Size:
    """Return the size to which Qwen's processor brings an image.

    Raises:
        VstateError: The image is too long.
    """
    check_ratio(*size)
    return fit(size, whole_units(size, unit), unit, limits)


def fit_frames(size: Size, unit: int, limits: Pixels, frames: int, group: int) -> Size:
    """Return the size to which Qwen's processor brings each frame of a video.

    Args:
        size: Of a frame.
        unit: Pixels that a side is a multiple of.
        limits: Least and most pixels of all frames.
        frames: Frames of the video.
        group: Frames of one temporal patch.

    Raises:
        VstateError: There are fewer frames than a patch has, or they are too long.
    """
    if frames < group:
        raise VstateError(f"a video of {frames} frames is shorter than a patch of {group}; give more frames")
    if min(size) < unit:
        scale = max(unit / size.height, unit / size.width)
        size = Size(int(size.width * scale), int(size.height * scale))
    check_ratio(*size)
    counted = round(frames / group) * group
    return fit(size, whole_units(size, unit), unit, limits, frames=frames, counted_frames=counted)


def largest(pixels: int, unit: int) -> Size:
    """Return the size with the most units within ``pixels`` that is not too long.

    Sides are a whole number of units each, so that the most units may have no such sides.
    """
    for units in range(pixels // (unit * unit), 0, -1):
        short = next(side for side in range(isqrt(units), 0, -1) if units % side == 0)
        if units // short / short <= LONGEST_RATIO:
            return Size(unit * (units // short), unit * short)
    raise VstateError(f"{pixels} pixels hold no image of {unit} by {unit}; raise the processor's limit")
