"""Makes the content of media items up: noise that follows from kind, name, size and seed."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from vstate.schemas.workload import MediaItem

SAMPLES_PER_SECOND = 16_000
FRAMES_PER_SECOND = 2
"""The rate that video models sample at, so that they keep each frame."""


def media_array(item: MediaItem, seed: int) -> npt.NDArray[Any]:
    """Return the content of an item.

    Returns:
        An image as (height, width, 3) and a video as (frames, height, width, 3) in uint8, a
        sound as (samples,) in float32 between -1 and 1.
    """
    generator = np.random.default_rng([seed, zlib.crc32(f"{item.kind}:{item.name}".encode())])
    if item.kind == "audio":
        samples = max(1, round((item.seconds or 0) * SAMPLES_PER_SECOND))
        return generator.uniform(-1, 1, samples).astype(np.float32)
    frames = () if item.kind == "image" else (item.frames or 0,)
    return generator.integers(0, 256, (*frames, item.height or 0, item.width or 0, 3), dtype=np.uint8)


def engine_media(item: MediaItem, seed: int) -> Any:
    """Return an item as vLLM takes it in ``multi_modal_data``."""
    array = media_array(item, seed)
    if item.kind == "audio":
        return array, SAMPLES_PER_SECOND
    if item.kind == "video":
        frames = array.shape[0]
        metadata = {
            "fps": float(FRAMES_PER_SECOND),
            "duration": frames / FRAMES_PER_SECOND,
            "total_num_frames": frames,
            "frames_indices": list(range(frames)),
            "video_backend": "opencv",
            "do_sample_frames": False,
        }
        return array, metadata
    from PIL import Image

    return Image.fromarray(array)
