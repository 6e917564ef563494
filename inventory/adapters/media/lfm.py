"""LFM2-VL with SigLIP2: images in one tile or in several with a thumbnail.

Sources: vLLM 0.32 ``model_executor/models/lfm2_vl.py``, ``lfm2_siglip2.py``; transformers
``models/lfm2_vl/image_processing_lfm2_vl.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isqrt

from vstate.inventory.adapters.decoder import element_bytes
from vstate.inventory.adapters.media import files
from vstate.inventory.adapters.media.encoder import (
    Encoder,
    encoder_share,
    encoder_weights,
    layer_norm,
    linear,
    takes,
)
from vstate.inventory.adapters.media.items import check_item
from vstate.inventory.adapters.media.resize import Pixels, Size, fit, whole_units
from vstate.inventory.adapters.media.siglip import siglip_elements
from vstate.inventory.adapters.media.tiles import Grid, closest_grid, grids
from vstate.inventory.adapters.plan import Expansion, MediaItem, MediaRules
from vstate.inventory.adapters.reading import ConfigReader
from vstate.inventory.adapters.registry import Context
from vstate.schemas.errors import VstateError
from vstate.schemas.workload import MediaKind

CHANNELS = 3
SHAPE_BYTES = 2 * 8
"""A tile says how many patches it has in height and width, in 64-bit integers."""
COUNT_BYTES = 8
"""An item says of how many tiles it is, in a 64-bit integer."""


def encoder(reader: ConfigReader, context: Context) -> Encoder:
    """Say what the encoder of a model with this configuration is.

    Raises:
        VstateError: A field is missing, or the heads cannot be shared by the ranks.
    """
    vision, width = reader.part("vision_config"), element_bytes(context)
    rules = _rules(reader, vision, context)
    if not takes(context, *rules.kinds):
        return Encoder((), rules)
    tower = siglip_elements(vision, encoder_share(context, reader.model), vision.get("num_patches", 256))
    return Encoder(encoder_weights(tower * width, _projector_elements(reader, vision) * width), rules)


def _projector_elements(reader: ConfigReader, vision: ConfigReader) -> int:
    inputs = vision.integer("hidden_size") * reader.get("downsample_factor", 2) ** 2
    inner, out = reader.integer("projector_hidden_size"), reader.part("text_config").integer("hidden_size")
    bias = reader.get("projector_bias", True)
    norm = layer_norm(inputs) if reader.get("projector_use_layernorm", True) else 0
    return norm + linear(inputs, inner, bias=bias) + linear(inner, out, bias=bias)


@dataclass(frozen=True)
class LfmRules(MediaRules):
    """A large image becomes a grid of square tiles and a thumbnail, a smaller one a tile of its own shape.

    Attributes:
        model: How errors name the model.
        patch: Pixels along a patch.
        merge: Patches along the square of one row.
        rows: Least and most rows of an image in one piece.
        tile: Pixels along a tile.
        tiles: Least and most tiles of a grid.
        tolerance: How many times the most rows an image may have before it is cut.
        splits: Whether the processor cuts images as vLLM takes for granted, with a thumbnail behind the tiles.
        value_bytes: Bytes of one value of a pixel on the host.
    """

    model: str
    patch: int
    merge: int
    rows: Pixels
    tile: int
    tiles: tuple[int, int]
    tolerance: float
    splits: bool
    value_bytes: int
    kinds: tuple[MediaKind, ...] = ("image",)

    @property
    def unit(self) -> int:
        """Pixels along the square of one row."""
        return self.patch * self.merge

    @property
    def tile_rows(self) -> int:
        """Rows of a tile."""
        return ceil(self.tile // self.patch / self.merge) ** 2

    def expand(self, item: MediaItem) -> Expansion:
        """Return the rows of an image with its marks: at both ends, before each tile, before the thumbnail.

        Raises:
            VstateError: vLLM makes room for tiles that the processor does not cut.
        """
        grid, whole = self._grid(item), self._whole_rows(item)
        if grid.tiles == 1:
            return Expansion(whole + 2, whole)
        rows = grid.tiles * self.tile_rows + whole
        return Expansion(rows + 2 + grid.tiles + 1, rows)

    def largest_rows(self, max_model_len: int) -> Mapping[MediaKind, int]:
        """Return the rows of a square of the most rows in one piece; vLLM takes no image in tiles for larger."""
        side = isqrt(self.rows.most * self.unit**2)
        return {"image": self.expand(MediaItem("image", side, side)).rows}

    def host_bytes(self, item: MediaItem) -> int:
        """Return the bytes of an image's tiles, each padded to the patches of the largest, and of their shapes."""
        grid = self._grid(item)
        pieces = grid.tiles + (grid.tiles > 1)
        room = max(self.rows.most * self.merge**2, (self.tile // self.patch) ** 2 if self.splits else 0)
        tile_bytes = room * CHANNELS * self.patch**2 * self.value_bytes
        return pieces * (tile_bytes + SHAPE_BYTES) + COUNT_BYTES

    def _whole_rows(self, item: MediaItem) -> int:
        """Return the rows of an image, or of its thumbnail, in one piece."""
        limits = Pixels(self.rows.least * self.unit**2, self.rows.most * self.unit**2)
        size = Size(item.width, item.height)
        size = fit(size, whole_units(size, self.unit, self.unit), self.unit, limits)
        return (size.width // self.unit) * (size.height // self.unit)

    def _grid(self, item: MediaItem) -> Grid:
        check_item(item, self.kinds, self.model)
        least, most = self.tiles
        if least == most == 1 or not self._is_large(item):
            return Grid(1, 1)
        grid = closest_grid(item.width, item.height, self.tile, grids(least, most))
        if grid.tiles > 1 and not self.splits:
            raise VstateError(
                f"{self.model}: vLLM cuts an image of {item.width} by {item.height} pixels, and its processor's file "
                "says not to, or to leave the thumbnail away; set min_tiles and max_tiles to 1"
            )
        return grid

    def _is_large(self, item: MediaItem) -> bool:
        near = whole_units(Size(item.width, item.height), self.unit, self.patch)
        return near.width * near.height > self.rows.most * self.unit**2 * self.tolerance


def _rules(reader: ConfigReader, vision: ConfigReader, context: Context) -> LfmRules:
    images = files.image_processor(context, reader.model)
    patch, merge = images.get("encoder_patch_size", 16), images.get("downsample_factor", 2)
    expected = (vision.integer("patch_size"), reader.get("downsample_factor", 2))
    if (patch, merge) != expected:
        raise VstateError(f"{reader.model}: {images.place}patches of {patch} by {merge}, the model's are {expected}")
    return LfmRules(
        model=reader.model,
        patch=patch,
        merge=merge,
        rows=Pixels(images.get("min_image_tokens", 64), images.get("max_image_tokens", 256)),
        tile=images.get("tile_size", 512),
        tiles=(images.get("min_tiles", 2), images.get("max_tiles", 10)),
        tolerance=images.get("max_pixels_tolerance", 2.0),
        splits=images.get("do_image_splitting", True) and images.get("use_thumbnail", True),
        value_bytes=element_bytes(context),
    )
