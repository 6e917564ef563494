"""Requests with an image, a sound or a video each, out of pools in which items come again."""

from __future__ import annotations

from collections.abc import Iterator

from vstate.schemas.workload import MediaItem, MediaKind, MediaSegment, WorkloadRequest
from vstate.tracer.workloads.generators.draws import POISSON, Draws, GeneratorOptions

HEADER = (
    f"{POISSON}; a prompt is one item",
    "  out of a pool of --items of one of --kinds, each as likely as the other, and text behind it;",
    "  sizes are even in their logarithm: images of 128 to 1024 pixels a side, sounds of 1 to 30 s,",
    "  videos of 128 to 448 pixels a side and 2 to 32 frames",
)
OPTIONS = frozenset({"kinds", "items"})


def make(options: GeneratorOptions) -> Iterator[WorkloadRequest]:
    """Make the requests."""
    draws = Draws(options)
    pools = [[_item(draws, kind, number) for number in range(options.items)] for kind in options.kinds]
    for number, when in draws.numbered_arrivals():
        pool = pools[draws.below(len(pools))]
        yield draws.request(number, when, MediaSegment(media=pool[draws.below(len(pool))]))


def _item(draws: Draws, kind: MediaKind, number: int) -> MediaItem:
    name = f"{kind}-{number}"
    if kind == "audio":
        return MediaItem(kind=kind, name=name, seconds=draws.between(10, 300) / 10)
    largest = 1024 if kind == "image" else 448
    width, height = draws.between(128, largest), draws.between(128, largest)
    frames = draws.between(2, 32) if kind == "video" else None
    return MediaItem(kind=kind, name=name, width=width, height=height, frames=frames)
