"""Qwen3.5 and Qwen3.6 with vision: images and videos of merged patches.

Sources: vLLM 0.32 ``model_executor/models/qwen3_vl.py``, ``qwen2_vl.py``; transformers
``models/qwen2_vl/image_processing_qwen2_vl.py``, ``models/qwen3_vl/video_processing_qwen3_vl.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vstate.inventory.adapters.decoder import element_bytes, rotary_bytes
from vstate.inventory.adapters.media import files
from vstate.inventory.adapters.media.encoder import (
    Encoder,
    encoder_share,
    encoder_weights,
    layer_norm,
    linear,
    takes,
    transformer_block,
)
from vstate.inventory.adapters.media.items import check_item
from vstate.inventory.adapters.media.resize import Pixels, Size, fit_frames, fit_image, largest
from vstate.inventory.adapters.media.words import ASSUMED_WORDS, TextTokens, text_tokens
from vstate.inventory.adapters.plan import Expansion, MediaItem, MediaRules
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Context
from vstate.inventory.adapters.weights import Share
from vstate.schemas.errors import VstateError
from vstate.schemas.workload import MediaKind

ROTARY_POSITIONS = 8192
"""Positions that the tower's rotary table is built for (``Qwen3_VisionTransformer``)."""
VIDEO_CLASS = "Qwen3VLVideoProcessor"
CHANNELS = 3
GRID_BYTES = 3 * 8
"""An item says how many patches it has in time, height and width, in 64-bit integers."""
LARGEST_FRAMES = 2
"""Frames of the video by which vLLM sizes its encoder cache: more frames have smaller ones."""


def encoder(reader: ConfigReader, context: Context) -> Encoder:
    """Say what the encoder of a model with this configuration is.

    Raises:
        VstateError: A field is missing, or the heads cannot be shared by the ranks.
    """
    vision = reader.part("vision_config")
    rules = _rules(reader.model, vision, context)
    if not takes(context, *rules.kinds):
        return Encoder((), rules)
    share, width = encoder_share(context, reader.model, whole_in_data_mode=True), element_bytes(context)
    tower, projector = _elements(vision, share)
    rotary = vision.integer("hidden_size") // vision.integer("num_heads") // 2
    tower_bytes = tower * width + rotary_bytes(ROTARY_POSITIONS, rotary, width) + files.device_norm_bytes(context)
    return Encoder(encoder_weights(tower_bytes, projector * width), rules)


def _elements(vision: ConfigReader, share: Share) -> tuple[int, int]:
    """Return the elements of the tower without its rotary table, and of the mergers."""
    hidden, merged = vision.integer("hidden_size"), vision.integer("spatial_merge_size") ** 2
    patch = vision.integer("in_channels") * vision.integer("temporal_patch_size") * vision.integer("patch_size") ** 2
    block = transformer_block(share, hidden, vision.integer("num_heads"), vision.integer("intermediate_size"))
    tower = linear(patch, hidden) + vision.integer("num_position_embeddings") * hidden + vision.integer("depth") * block
    inner, out = hidden * merged, vision.integer("out_hidden_size")
    merger = share.column(inner, inner, bias=True) + share.row(inner, out, bias=True)
    deep = len(vision.sequence("deepstack_visual_indexes")) if "deepstack_visual_indexes" in vision else 0
    return tower, merger + layer_norm(hidden) + deep * (merger + layer_norm(inner))


@dataclass(frozen=True)
class QwenRules(MediaRules):
    """Images and videos become a row for each square of merged patches.

    Attributes:
        model: How errors name the model.
        patch: Pixels along a patch.
        merge: Patches along a row's square.
        group: Frames of a temporal patch.
        images: Least and most pixels of an image.
        videos: Least and most pixels of all frames of a video.
        frame_rows: Most rows that a frame may have on average; 0 for no such limit.
        pixel_bytes: Bytes of one value of a pixel on the host.
        text_tokens: Counts the tokens of the moments that stand before frames.
        assumed: What the rules rest on that no file says.
    """

    model: str
    patch: int
    merge: int
    group: int
    images: Pixels
    videos: Pixels
    frame_rows: int
    pixel_bytes: int
    text_tokens: TextTokens = text_tokens
    kinds: tuple[MediaKind, ...] = ("image", "video")
    assumed: tuple[str, ...] = (ASSUMED_WORDS,)

    @property
    def unit(self) -> int:
        """Pixels along the square of one row."""
        return self.patch * self.merge

    def expand(self, item: MediaItem) -> Expansion:
        """Return the rows of an item; a video has a moment and two marks for each group of frames beside."""
        rows = self._groups(item) * self._group_rows(item)
        if item.kind == "image":
            return Expansion(rows, rows)
        moments = (self.text_tokens(f"<{moment:.1f} seconds>") for moment in self._moments(item))
        return Expansion(rows + sum(count + 2 for count in moments), rows)

    def largest_rows(self, max_model_len: int) -> Mapping[MediaKind, int]:
        """Return the rows of the largest image, and of two frames of the largest size."""
        image = fit_image(largest(self.images.most, self.unit), self.unit, self.images)
        frame = largest(self.videos.most // self.group, self.unit)
        frame = fit_frames(frame, self.unit, self.videos, LARGEST_FRAMES, self.group)
        groups = -(-LARGEST_FRAMES // self.group)
        return {"image": self._rows(image), "video": groups * self._rows(frame)}

    def host_bytes(self, item: MediaItem) -> int:
        """Return the bytes of an item's patches, and of how many there are."""
        patches = self._groups(item) * self._group_rows(item) * self.merge**2
        return patches * CHANNELS * self.group * self.patch**2 * self.pixel_bytes + GRID_BYTES

    def _groups(self, item: MediaItem) -> int:
        check_item(item, self.kinds, self.model)
        return 1 if item.kind == "image" else -(-item.frames // self.group)

    def _group_rows(self, item: MediaItem) -> int:
        size = Size(item.width, item.height)
        if item.kind == "image":
            return self._rows(fit_image(size, self.unit, self.images))
        limits = self.videos
        if self.frame_rows:
            each = min(self.frame_rows * self.unit**2, limits.most // item.frames)
            limits = Pixels(limits.least, max(each, int(limits.least * 1.05)) * item.frames)
        return self._rows(fit_frames(size, self.unit, limits, item.frames, self.group))

    def _rows(self, size: Size) -> int:
        return (size.width // self.unit) * (size.height // self.unit)

    def _moments(self, item: MediaItem) -> list[float]:
        """Return the middle of each group of frames, in seconds; the last frame is repeated to fill its group."""
        times = [frame / item.frames_per_second for frame in range(item.frames)]
        times += [times[-1]] * (-item.frames % self.group)
        return [(times[i] + times[i + self.group - 1]) / 2 for i in range(0, len(times), self.group)]


def _rules(model: str, vision: ConfigReader, context: Context) -> QwenRules:
    images, videos = files.image_processor(context, model), files.video_processor(context, model)
    patch, merge, group = (vision.integer(name) for name in ("patch_size", "spatial_merge_size", "temporal_patch_size"))
    _check_class(videos)
    for said, default in ((images, 14), (videos, 16)):
        _check(said, {"patch_size": (default, patch), "merge_size": (2, merge), "temporal_patch_size": (2, group)})
    image_limits = _limits(images, Pixels(56 * 56, 28 * 28 * 1280))
    image_limits = Pixels(images.get("min_pixels", image_limits.least), images.get("max_pixels", image_limits.most))
    device = context.settings.mm_device_do_normalize
    unstated = tuple(
        f"{said.place}not there, so that the limits of {name} are those of its processor's class"
        for name, said in (("images", images), ("videos", videos))
        if not [*said.fields()]
    )
    return QwenRules(
        model=model,
        patch=patch,
        merge=merge,
        group=group,
        images=image_limits,
        videos=_limits(videos, Pixels(128 * 32 * 32, 32 * 32 * 768)),
        frame_rows=videos.get("max_video_tokens", 768) if videos.get("cap_pixels_per_frame", False) else 0,
        pixel_bytes=1 if device else element_bytes(context),
        assumed=(ASSUMED_WORDS, *unstated),
    )


def _check_class(videos: ConfigReader) -> None:
    """Refuse videos that another class processes, as for a model without a file for them (``AutoVideoProcessor``)."""
    found = videos.get("video_processor_type", "")
    if not found and videos.get("image_processor_type", "") == "Qwen2VLImageProcessor":
        found = "Qwen2VLVideoProcessor"
    if found not in ("", VIDEO_CLASS):
        raise VstateError(
            f"{videos.model}: {videos.place}videos are processed by {found}, of which nothing is known; "
            f"add the {files.VIDEOS} of a {VIDEO_CLASS}"
        )


def _limits(said: ConfigReader, default: Pixels) -> Pixels:
    if "size" not in said:
        return default
    size = said.part("size")
    return Pixels(size.integer("shortest_edge", "min_pixels"), size.integer("longest_edge", "max_pixels"))


def _check(said: ConfigReader, fields: Mapping[str, tuple[int, int]]) -> None:
    """Refuse a processor whose patches are not the tower's; one without a file has the tower's."""
    if not [*said.fields()]:
        return
    for name, (default, expected) in fields.items():
        if (value := said.get(name, default)) != expected:
            raise VstateError(f"{said.model}: {said.place}{name} is {value}, the vision tower's is {expected}")
