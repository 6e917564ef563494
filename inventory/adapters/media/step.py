"""Step-3.7 with a PE-G tower: a base image, and crops of larger ones.

Sources: vLLM 0.32 ``model_executor/models/step3p7.py``, ``step_vl.py``, ``step3_vl.py``,
``transformers_utils/processors/step3_vl.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from vstate.inventory.adapters.decoder import element_bytes
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
from vstate.inventory.adapters.media.resize import Size
from vstate.inventory.adapters.media.tiles import Grid
from vstate.inventory.adapters.plan import Expansion, MediaItem, MediaRules
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Context
from vstate.inventory.adapters.weights import Share
from vstate.schemas.errors import VstateError
from vstate.schemas.workload import MediaKind

CHANNELS = 3
ROTARY_BYTES = 4
"""Each block has a table of angles of its own, float32 whatever the model's type is."""

BASE_PIXELS, BASE_ROWS = 728, 169
CROP_PIXELS, CROP_ROWS = 504, 81
"""Side and rows of the base image and of a crop (``Step3VLImageProcessor``, whatever the configuration says)."""
LONGEST_SIDE = 3024
"""Longer images are shrunk (``MAX_IMAGE_SIZE``)."""
NARROW, NARROW_RATIO = 32, 4
"""Images that are thinner and longer than that are padded to squares."""
MARKS = 2
"""Tokens around the rows of the base image, and around those of a crop."""
COUNT_BYTES = 8
"""An item says how many crops it has, in a 64-bit integer."""


def encoder(reader: ConfigReader, context: Context) -> Encoder:
    """Say what the encoder of a model with this configuration is; vLLM counts its projector to the tower.

    Raises:
        VstateError: A field is missing, or the heads cannot be shared by the ranks.
    """
    vision, width = reader.part("vision_config"), element_bytes(context)
    rules = StepRules(reader.model, vision.get("enable_patch", True), width)
    if not takes(context, *rules.kinds):
        return Encoder((), rules)
    share = encoder_share(context, reader.model, whole_in_data_mode=True)
    tower = _tower_elements(vision, share)
    projector = share.column(
        4 * vision.integer("width"),
        reader.part("text_config").integer("hidden_size"),
        bias=reader.get("projector_bias", True),
    )
    return Encoder(encoder_weights((tower + projector) * width + _rotary_bytes(vision)), rules)


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


@dataclass(frozen=True)
class StepRules(MediaRules):
    """Every image becomes a base image; larger and longer ones become crops too.

    Attributes:
        model: How errors name the model.
        crops: Whether images are cropped.
        value_bytes: Bytes of one value of a pixel on the host.
    """

    model: str
    crops: bool
    value_bytes: int
    kinds: tuple[MediaKind, ...] = ("image",)

    def expand(self, item: MediaItem) -> Expansion:
        """Return the rows of an image with its marks: around each piece, and between rows of crops."""
        grid = self._crops(item)
        rows = BASE_ROWS + grid.tiles * CROP_ROWS
        return Expansion(rows + MARKS * (1 + grid.tiles) + max(grid.rows - 1, 0), rows)

    def largest_rows(self, max_model_len: int) -> Mapping[MediaKind, int]:
        """Return the tokens of a square image of the longest side, which vLLM takes for its rows."""
        return {"image": self.expand(MediaItem("image", LONGEST_SIDE, LONGEST_SIDE)).tokens}

    def host_bytes(self, item: MediaItem) -> int:
        """Return the bytes of an image's pieces, of how many crops there are, and of where rows of them end."""
        crops = self._crops(item).tiles
        pixels = BASE_PIXELS**2 + crops * CROP_PIXELS**2
        return CHANNELS * pixels * self.value_bytes + COUNT_BYTES + crops

    def _crops(self, item: MediaItem) -> Grid:
        """Return the grid of an image's crops (``ImagePatcher``)."""
        check_item(item, self.kinds, self.model)
        size = _shrunk(_padded(Size(item.width, item.height)))
        window = _window(max(size), min(size))
        if window == 0 or not self.crops:
            return Grid(0, 0)
        return Grid(*(ceil(_whole_windows(side, window) / window) for side in size))


def _padded(size: Size) -> Size:
    ratio = size.width / size.height
    narrow = min(size) < NARROW and (ratio > NARROW_RATIO or ratio < 1 / NARROW_RATIO)
    return Size(max(size), max(size)) if narrow else size


def _shrunk(size: Size) -> Size:
    if max(size) <= LONGEST_SIDE:
        return size
    shrink = LONGEST_SIDE / max(size)
    shrunk = Size(int(size.width * shrink), int(size.height * shrink))
    if min(shrunk) == 0:
        raise VstateError(f"an image of {size.width} by {size.height} pixels is shrunk to nothing; crop it")
    return shrunk


def _window(long: int, short: int) -> int:
    """Return the side of the window that crops are taken by; 0 for no crops."""
    if long < BASE_PIXELS:
        return short if long / short > 1.5 else 0  # noqa: PLR2004
    return min(short, CROP_PIXELS) if long / short > NARROW_RATIO else CROP_PIXELS


def _whole_windows(side: int, window: int) -> int:
    """Return a side in whole windows: a fifth of one more makes one more; one that is shorter stays."""
    if side < window:
        return side
    count = side // window
    return window * (count + (side / window - count > 0.2))  # noqa: PLR2004
