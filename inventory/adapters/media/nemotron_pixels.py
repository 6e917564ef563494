"""Sizes to which Nemotron Omni's processor brings images and frames.

Source: vLLM 0.32 ``transformers_utils/processors/nano_nemotron_vl.py``, ``internvl.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, inf, isqrt, sqrt
from typing import Self

from vstate.inventory.adapters.media.resize import Size
from vstate.inventory.adapters.media.tiles import closest_grid, grids
from vstate.inventory.adapters.plan import MediaItem
from vstate.inventory.adapters.reading import ConfigReader
from vstate.schemas.errors import VstateError

CHANNELS = 3
SHUFFLED = 2
"""Patches along the square of one row, where images keep their size."""
MOST_TILES = 12
"""``DEFAULT_NUM_TILES``."""
RESERVED_TOKENS = 4
"""Tokens of the context that are kept free of an image (``max_num_tokens_available``)."""
ROUNDS = 10


@dataclass(frozen=True)
class DynamicImages:
    """Images that keep their size within limits of patches (``DynamicResolutionImageTiler``).

    Attributes:
        patch: Pixels along a patch.
        least: Least patches of an image.
        most: Most patches of an image.
        longest: Longest context, which bounds an image too.
        counts: Numbers that an item keeps beside its pixels.
    """

    patch: int
    least: int
    most: float
    longest: int
    counts: int = 0

    @classmethod
    def read(cls, reader: ConfigReader, longest: int) -> Self:
        """Read the limits.

        Raises:
            VstateError: A field is missing, or rows are not shuffled two by two, which vLLM asks for.
        """
        if reader.number("downsample_ratio") != 1 / SHUFFLED:
            raise VstateError(f"{reader.model}: downsample_ratio is not {1 / SHUFFLED}, which images of any size need")
        arguments = reader.part("vision_config").part("args")
        most = arguments.integer("max_num_patches")
        return cls(
            reader.integer("patch_size"), arguments.integer("min_num_patches"), most if most > 0 else inf, longest
        )

    def rows(self, size: Size) -> int:
        """Return the rows of an image that is alone in its request."""
        columns, lines = self._patches(size)
        return columns * lines // SHUFFLED**2

    def values(self, size: Size) -> int:
        """Return the values of an image's pixels."""
        columns, lines = self._patches(size)
        return CHANNELS * columns * lines * self.patch**2

    def most_rows(self, max_model_len: int) -> int:
        """Return the rows of the largest square whose rows the context has room for, of any patches."""
        return isqrt(max_model_len - 1 - RESERVED_TOKENS) ** 2

    def _patches(self, size: Size) -> tuple[int, int]:
        """Return the patches in width and height (``compute_params``)."""
        available = max((self.longest - RESERVED_TOKENS) * SHUFFLED**2, self.least)
        budget = int(max(min(available, self.most), self.least))
        for _ in range(ROUNDS):
            columns, lines = self._within(size, budget)
            if columns * lines <= available:
                return columns, lines
            budget = max(self.least, available) if max(self.least, available) < budget else self.least
        raise VstateError(f"an image of {size.width} by {size.height} pixels does not fit the context; crop it")

    def _within(self, size: Size, budget: int) -> tuple[int, int]:
        """Return the patches in width and height within a budget, pairs of them (``process_media``)."""
        columns, lines = (round(side / self.patch + 0.5) for side in size)
        factor = min(sqrt(budget / (columns * lines)), 1.0)
        columns, lines = floor(factor * columns), floor(factor * lines)
        if min(columns, lines) == 0:
            raise VstateError(f"an image of {size.width} by {size.height} pixels is shrunk to nothing; crop it")
        if budget > self.least > columns * lines:
            factor = sqrt(self.least / (columns * lines))
            columns, lines = ceil(factor * columns), ceil(factor * lines)
        lines = _in_pairs(lines, columns, budget)
        return _in_pairs(columns, lines, budget), lines


def _in_pairs(side: int, other: int, budget: int) -> int:
    """Return a side as a multiple of two: one more where that fits the budget, else one less."""
    if side % SHUFFLED == 0:
        return side
    return side + 1 if (side + 1) * other <= budget else max(SHUFFLED, side - 1)


@dataclass(frozen=True)
class TiledImages:
    """Images in a grid of square tiles, with a thumbnail behind where there are several.

    Attributes:
        tile: Pixels along a tile.
        tile_rows: Rows of a tile.
        thumbnail: Whether there is a thumbnail.
        counts: Numbers that an item keeps beside its pixels.
    """

    tile: int
    tile_rows: int
    thumbnail: bool
    counts: int = 1

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read the tiles.

        Raises:
            VstateError: A field is missing.
        """
        return cls(reader.integer("force_image_size"), square_rows(reader), reader.get("use_thumbnail", False))

    def rows(self, size: Size) -> int:
        """Return the rows of an image."""
        return self._tiles(size) * self.tile_rows

    def values(self, size: Size) -> int:
        """Return the values of an image's pixels."""
        return self._tiles(size) * CHANNELS * self.tile**2

    def most_rows(self, max_model_len: int) -> int:
        """Return the rows of the grid with the most."""
        choices = grids(1, MOST_TILES)
        return max(self.rows(Size(self.tile * grid.columns, self.tile * grid.rows)) for grid in choices)

    def _tiles(self, size: Size) -> int:
        tiles = closest_grid(*size, self.tile, grids(1, MOST_TILES)).tiles
        return tiles + (self.thumbnail and tiles > 1)


def square_rows(reader: ConfigReader) -> int:
    """Return the rows of a tile, and of a frame that is brought to a tile's size."""
    patches = reader.integer("force_image_size") // reader.integer("patch_size")
    return int(patches**2 * reader.number("downsample_ratio") ** 2)


@dataclass(frozen=True)
class Frames:
    """Frames of a video, all of one size, some of which make a tubelet.

    Attributes:
        group: Frames of a tubelet.
        patch: Pixels along a patch.
        ratio: Share of the patches along a side that are left as rows.
        square: Pixels along a frame, where nothing says how many patches it should have.
        square_rows: Rows of such a frame.
        patches: Patches that a frame should have; 0 where nothing says so.
        keeps_shape: Whether frames keep their shape then.
    """

    group: int
    patch: int
    ratio: float
    square: int
    square_rows: int
    patches: int
    keeps_shape: bool

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read how frames are.

        Raises:
            VstateError: A field is missing, or two say how large a frame is.
        """
        vision, patch = reader.part("vision_config"), reader.integer("patch_size")
        patches = vision.get("video_target_num_patches", 0)
        if "video_target_img_size" in vision:
            if patches:
                raise VstateError(
                    f"{reader.model}: {vision.place}video_target_num_patches and video_target_img_size are both there; "
                    "leave one away"
                )
            patches = ceil(vision.number("video_target_img_size") / patch) ** 2
        return cls(
            group=vision.get("video_temporal_patch_size", 1),
            patch=patch,
            ratio=reader.number("downsample_ratio"),
            square=reader.integer("force_image_size"),
            square_rows=square_rows(reader),
            patches=patches,
            keeps_shape=vision.get("video_maintain_aspect_ratio", False),
        )

    def rows(self, size: Size) -> int:
        """Return the rows of a tubelet."""
        if not self.patches:
            return self.square_rows
        brought = self._brought_to(size)
        return int(brought.height // self.patch * self.ratio) * int(brought.width // self.patch * self.ratio)

    def values(self, size: Size) -> int:
        """Return the values of a frame's pixels."""
        brought = self._brought_to(size) if self.patches else Size(self.square, self.square)
        return CHANNELS * brought.width * brought.height

    def texts(self, item: MediaItem) -> list[str]:
        """Return what stands before each tubelet (``get_video_repl``)."""
        duration = int(1000 / item.frames_per_second)
        moments = [
            f"{'frame' if index % self.group else 'Frame'} {index + 1} sampled at {index * duration / 1000:.2f} seconds"
            for index in range(item.frames)
        ]
        groups = [" and ".join(moments[i : i + self.group]) for i in range(0, len(moments), self.group)]
        return [f"{'' if index == 0 else chr(10)}{text}: " for index, text in enumerate(groups)]

    def _brought_to(self, size: Size) -> Size:
        """Return the size of a frame of about as many patches as it should have."""
        step = round(1 / self.ratio)
        if not self.keeps_shape:
            side = max(step, isqrt(self.patches) // step * step)
            return Size(side * self.patch, side * self.patch)
        shape = size.width / size.height
        lines, columns = (max(round(sqrt(share)), 1) for share in (self.patches / shape, self.patches * shape))
        more = [-(-count // step) * step for count in (columns, lines)]
        if step > 1:
            less = [max(step, count // step * step) for count in (columns, lines)]
            columns, lines = more if more[0] * more[1] <= self.patches else less
        return Size(columns * self.patch, lines * self.patch)
