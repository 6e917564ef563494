"""Cuts a large image into a grid of tiles whose shape comes closest to the image's.

Source: ``find_closest_aspect_ratio`` of transformers ``models/lfm2_vl/image_processing_lfm2_vl.py`` and of vLLM 0.32
``transformers_utils/processors/internvl.py``.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


class Grid(NamedTuple):
    """A grid of tiles."""

    columns: int
    rows: int

    @property
    def tiles(self) -> int:
        """Tiles of the grid."""
        return self.columns * self.rows


@cache
def grids(least: int, most: int) -> tuple[Grid, ...]:
    """Return the grids of ``least`` to ``most`` tiles, those of fewer tiles first.

    Of as many tiles, they stand as a set yields them that was filled in this order: so do vLLM's, and where two are
    as close, order decides.
    """
    found = {
        Grid(columns, rows)
        for limit in range(least, most + 1)
        for columns in range(1, limit + 1)
        for rows in range(1, limit + 1)
        if least <= columns * rows <= most
    }
    return tuple(sorted(found, key=lambda grid: grid.tiles))


def closest_grid(width: int, height: int, tile: int, choices: tuple[Grid, ...]) -> Grid:
    """Return the grid of the closest aspect ratio; of equal ones the last whose half the image covers.

    Args:
        width: Of the image, in pixels.
        height: Of the image, in pixels.
        tile: Side of a tile, in pixels.
        choices: Grids to choose from, in their order.
    """
    best, closest = Grid(1, 1), float("inf")
    for grid in choices:
        distance = abs(width / height - grid.columns / grid.rows)
        covers_half = width * height > 0.5 * tile * tile * grid.tiles
        if distance < closest or (distance == closest and covers_half):
            best, closest = grid, distance
    return best
