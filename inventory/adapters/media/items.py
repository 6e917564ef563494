"""Checks items before they expand."""

from __future__ import annotations

from vstate.inventory.adapters.plan import MediaItem
from vstate.schemas.errors import VstateError
from vstate.schemas.workload import MediaKind


def check_item(item: MediaItem, kinds: tuple[MediaKind, ...], model: str) -> None:
    """Refuse an item of another kind, or of no size.

    Raises:
        VstateError: It is one.
    """
    if item.kind not in kinds:
        raise VstateError(f"{model} takes no {item.kind}; it takes {', '.join(kinds)}")
    if item.kind == "audio":
        if item.seconds <= 0:
            raise VstateError(f"a sound of {item.seconds} s cannot be processed; give its seconds")
    elif min(item.width, item.height) < 1:
        raise VstateError(f"{item.kind} of {item.width} by {item.height} pixels; give its width and height")
    elif item.kind == "video" and item.frames < 1:
        raise VstateError(f"a video of {item.frames} frames cannot be processed; give its frames")


def samples(item: MediaItem, sampling_rate: int) -> int:
    """Return the samples of a sound at a rate; there is one at least."""
    return max(1, round(item.seconds * sampling_rate))
