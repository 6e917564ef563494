"""The media part of the workload `smoke`: repeated and different items between text.

It begins when the text part has ended, and like that it hangs on other requests only.
"""

from __future__ import annotations

from collections.abc import Sequence

from vstate.schemas.workload import (
    Length,
    MediaItem,
    MediaKind,
    MediaSegment,
    Segment,
    Trigger,
    WorkloadAbort,
    WorkloadRequest,
)

_SIZES: dict[MediaKind, tuple[dict[str, float], dict[str, float]]] = {
    "image": ({"width": 128, "height": 128}, {"width": 256, "height": 192}),
    "audio": ({"seconds": 1.0}, {"seconds": 2.5}),
    "video": ({"width": 64, "height": 64, "frames": 4}, {"width": 96, "height": 64, "frames": 6}),
}
"""A smaller and a larger item of each kind."""
CROWD = 5
"""Requests that run together."""

_Part = Segment | MediaSegment


def media_lines(kinds: Sequence[MediaKind], after: str) -> list[WorkloadRequest | WorkloadAbort]:
    """Return the lines for media of all ``kinds``, one kind after the other, from the end of ``after`` on."""
    lines: list[WorkloadRequest | WorkloadAbort] = []
    for kind in kinds:
        lines += _lines_of(kind, after)
        after = f"{kind}-once-more"
    return lines


def _lines_of(kind: MediaKind, after: str) -> list[WorkloadRequest | WorkloadAbort]:
    """Return the lines for one kind.

    - ``look`` has two items between text; ``look-again`` begins with more than a block of the same,
      ``other`` has another item in the place of the first.
    - ``twice`` has one item twice; ``late`` has one behind a text longer than a chunk.
    - ``crowd-*`` run together, each with an item of its own and one that all share, and cross a block
      boundary while decoding.
    - ``gives-up`` is aborted while it decodes.
    - ``once-more`` asks for the first items again, after all of these.
    """
    small, large = _SIZES[kind]
    cat, dog = _item(kind, "cat", small), _item(kind, "dog", large)

    def request(name: str, follows: str, *prompt: _Part, output: int) -> WorkloadRequest:
        when = Trigger(after=follows)
        return WorkloadRequest(id=f"{kind}-{name}", when=when, prompt=prompt, output=Length(tokens=output))

    look = (_text("look", 0.25, 3), cat, _text("between", 0.5, 9), dog, _text("look-end", 0.5, 0))
    lines: list[WorkloadRequest | WorkloadAbort] = [
        request("look", after, *look, output=6),
        request("look-again", f"{kind}-look", *look, _text("look-again-end", 0.25, 1), output=5),
        request("other", f"{kind}-look", look[0], _item(kind, "fox", small), *look[2:], output=5),
        request("twice", f"{kind}-look-again", cat, _text("twice", 0, 20), cat, _text("twice-end", 1, 0), output=7),
        request("late", f"{kind}-twice", _text("late", 2.25, 0), dog, output=4),
        request("gives-up", f"{kind}-twice", _item(kind, "owl", small), _text("gives-up", 0.25, 0), output=200),
        WorkloadAbort(
            kind="abort",
            id=f"{kind}-gives-up",
            when=Trigger(after=f"{kind}-gives-up", event="first_token"),
        ),
    ]
    lines += [
        request(
            f"crowd-{i}",
            f"{kind}-late",
            _item(kind, f"crowd-{i}", small),
            _text(f"crowd-{i}", 1.5, -2 * i),
            dog,
            output=20 + 4 * i,
        )
        for i in range(CROWD)
    ]
    lines.append(request("once-more", f"{kind}-crowd-{CROWD - 1}", *look, _text("once-more-end", 0, 12), output=4))
    return lines


def _item(kind: MediaKind, name: str, size: dict[str, float]) -> MediaSegment:
    return MediaSegment(media=MediaItem.model_validate({"kind": kind, "name": name, **size}))


def _text(name: str, blocks: float, tokens: int) -> Segment:
    return Segment(name=name, length=Length(blocks=blocks, tokens=tokens))
