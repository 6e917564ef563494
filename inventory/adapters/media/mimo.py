"""MiMo-V2 Omni: images and videos of merged patches, sounds through codes.

Sources: vLLM 0.32 ``model_executor/models/mimo_v2_omni.py``, ``mimo_audio.py``,
``transformers_utils/processors/mimo_v2_omni.py``, ``transformers_utils/configs/mimo_v2_omni.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from vstate.inventory.adapters.decoder import element_bytes, rotary_bytes
from vstate.inventory.adapters.media.encoder import Encoder, encoder_share, encoder_weights, linear, takes
from vstate.inventory.adapters.media.items import check_item
from vstate.inventory.adapters.media.mimo_audio import Sounds, audio_bytes
from vstate.inventory.adapters.media.resize import Pixels, Size, check_ratio, fit, fit_image, largest, whole_units
from vstate.inventory.adapters.media.words import ASSUMED_WORDS, TextTokens, text_tokens
from vstate.inventory.adapters.plan import Expansion, MediaItem, MediaRules
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Context
from vstate.inventory.adapters.weights import Share
from vstate.schemas.errors import VstateError
from vstate.schemas.workload import MediaKind

ROTARY_POSITIONS = 8192
"""Positions that the tower's rotary table is built for (``MiMoVisionTransformer``)."""
CHANNELS = 3
GRID_BYTES = 3 * 4
"""An item says how many patches it has in time, height and width, in 32-bit integers."""
SEGMENT_BYTES = 8
"""A video says how many pieces of sound it has, in a 64-bit integer."""
MOMENTS = 2
"""A video says when it starts and how long a grid lasts, in numbers of the model's type."""
MARKS = 2
"""Tokens around a video, and around the rows of each of its grids."""
LONGEST_DUMMY = 14
"""Most frames of the video by which vLLM sizes its encoder cache."""


def encoder(reader: ConfigReader, context: Context) -> Encoder:
    """Say what the encoder of a model with this configuration is; vLLM tells no projector apart.

    Raises:
        VstateError: A field is missing, or the heads cannot be shared by the ranks.
    """
    vision, width = reader.part("vision_config"), element_bytes(context)
    tower = 0
    if takes(context, "image", "video"):
        tower += _tower_elements(vision, encoder_share(context, reader.model)) * width
        tower += rotary_bytes(ROTARY_POSITIONS, vision.get("qk_channels", 64) // 2, width)
    if "audio_config" in reader and takes(context, "audio"):
        tower += audio_bytes(reader.part("audio_config"), width)
    return Encoder(encoder_weights(tower), _rules(reader, vision, width))


def _tower_elements(vision: ConfigReader, share: Share) -> int:
    """Return the elements of ``MiMoVisionTransformer`` without its rotary table."""
    hidden, merged = vision.integer("hidden_size"), vision.get("spatial_merge_size", 2) ** 2
    frames, side = vision.get("temporal_patch_size", 2), vision.get("patch_size", 16)
    patch = linear(vision.get("in_channels", CHANNELS) * frames * side**2, hidden, bias=False)
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


@dataclass(frozen=True)
class MimoRules(MediaRules):
    """Images and videos become a row for each square of merged patches, sounds a row for a group of codes.

    Attributes:
        model: How errors name the model.
        patch: Pixels along a patch.
        merge: Patches along a row's square.
        group: Frames of a grid.
        images: Least and most pixels of an image.
        videos: Least and most pixels of a frame.
        video_pixels: Most pixels of all frames of a video.
        frame_rate: Frames that vLLM counts for each one where it sizes the encoder cache.
        sounds: How sounds are cut.
        value_bytes: Bytes of one value on the host.
        text_tokens: Counts the tokens of the moment that stands before each grid.
    """

    model: str
    patch: int
    merge: int
    group: int
    images: Pixels
    videos: Pixels
    video_pixels: int
    frame_rate: int
    sounds: Sounds
    value_bytes: int
    text_tokens: TextTokens = text_tokens
    kinds: tuple[MediaKind, ...] = ("image", "video", "audio")
    assumed: tuple[str, ...] = (ASSUMED_WORDS,)

    @property
    def unit(self) -> int:
        """Pixels along the square of one row."""
        return self.patch * self.merge

    def expand(self, item: MediaItem) -> Expansion:
        """Return the rows of an item; a video has two marks, and a moment and two marks for each grid beside.

        vLLM takes the frames of a video for a second apart, whatever its rate.
        """
        rows = self._rows(item)
        if item.kind != "video":
            return Expansion(rows, rows)
        moments = (index * self.group for index in range(self._grids(item)))
        texts = (f"{moment // 60:02d}:{moment % 60:02d}" for moment in moments)
        return Expansion(rows + MARKS + sum(self.text_tokens(text) + MARKS for text in texts), rows)

    def largest_rows(self, max_model_len: int) -> Mapping[MediaKind, int]:
        """Return the rows of the largest image, and of as many such frames as the context has room for."""
        size = fit_image(largest(self.images.most, self.unit), self.unit, self.images)
        image = self._squares(size)
        frames = 1
        while frames < LONGEST_DUMMY and self._dummy_grids(frames + 1) * image <= max_model_len:
            frames += 1
        return {"image": image, "video": self._dummy_grids(frames) * image}

    def host_bytes(self, item: MediaItem) -> int:
        """Return the bytes of an item's patches or spectrum, and of the numbers beside them."""
        if item.kind == "audio":
            check_item(item, self.kinds, self.model)
            return self.sounds.host_bytes(item, self.value_bytes)
        patches = self._rows(item) * self.merge**2
        beside = MOMENTS * self.value_bytes + SEGMENT_BYTES if item.kind == "video" else 0
        return patches * CHANNELS * self.group * self.patch**2 * self.value_bytes + GRID_BYTES + beside

    def _rows(self, item: MediaItem) -> int:
        check_item(item, self.kinds, self.model)
        if item.kind == "audio":
            return self.sounds.rows(item)
        size, limits = Size(item.width, item.height), self.images
        if item.kind == "video":
            each = self.video_pixels * self.group // item.frames
            limits = Pixels(self.videos.least, max(self.videos.least, min(each, self.videos.most)))
        return self._grids(item) * self._squares(_fitted(size, self.unit, limits))

    def _grids(self, item: MediaItem) -> int:
        return -(-item.frames // self.group) if item.kind == "video" else 1

    def _dummy_grids(self, frames: int) -> int:
        counted = frames * self.frame_rate if frames > 1 else frames
        return max(-(-counted // self.group), 1)

    def _squares(self, size: Size) -> int:
        return (size.width // self.unit) * (size.height // self.unit)


def _fitted(size: Size, unit: int, limits: Pixels) -> Size:
    """Return the size to which MiMo's own processor brings an image or a frame (``_smart_resize``)."""
    width, height = size
    if min(size) >= unit:
        check_ratio(width, height)
    elif height < width:
        size = Size(int(width * unit / height), unit)
    else:
        size = Size(unit, int(height * unit / width))
    near = whole_units(size, unit)
    if near.width * near.height > limits.most and min(size) / sqrt(size.width * size.height / limits.most) < unit:
        raise VstateError(f"an image of {width} by {height} pixels is shrunk to nothing; crop it")
    return fit(size, near, unit, limits)


def _rules(reader: ConfigReader, vision: ConfigReader, width: int) -> MimoRules:
    said = reader.part("processor_config") if "processor_config" in reader else ConfigReader({}, reader.model)
    patch, merge = vision.get("patch_size", 16), vision.get("spatial_merge_size", 2)
    square = (patch * merge) ** 2

    def pixels(name: str, squares: int) -> int:
        """Return a limit; 0 is none."""
        return said.get(name, 0) or squares * square

    return MimoRules(
        model=reader.model,
        patch=patch,
        merge=merge,
        group=vision.get("temporal_patch_size", 2),
        images=Pixels(pixels("image_min_pixels", 4), pixels("image_max_pixels", 4096)),
        videos=Pixels(pixels("video_min_pixels", 4), pixels("video_max_pixels", 4096)),
        video_pixels=pixels("video_total_max_pixels", 16384),
        frame_rate=vision.get("tokens_per_second", 2),
        sounds=Sounds.read(reader, said),
        value_bytes=width,
    )
