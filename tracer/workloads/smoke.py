"""The workload `smoke`: everything an engine does to blocks, in a few dozen requests.

Lengths are in blocks of the engine, arrivals hang on steps and on other requests, so
that the same run repeats event by event. It needs a pool that it can overflow
(``TinyModel.smoke_blocks``); which of the things it aims at did happen stands in the
run's manifest.
"""

from __future__ import annotations

from collections.abc import Sequence

from vstate.schemas.workload import (
    Length,
    MediaKind,
    Segment,
    Trigger,
    WorkloadAbort,
    WorkloadRequest,
    check_workload,
)
from vstate.tracer.workloads.smoke_media import media_lines


def _request(
    name: str,
    when: Trigger,
    *prompt: tuple[str, float, int],
    output: int,
    priority: int = 0,
) -> WorkloadRequest:
    segments = tuple(Segment(name=part, length=Length(blocks=b, tokens=t)) for part, b, t in prompt)
    return WorkloadRequest(id=name, when=when, prompt=segments, output=Length(tokens=output), priority=priority)


def smoke(media: Sequence[MediaKind] = ()) -> list[WorkloadRequest | WorkloadAbort]:
    """Return the workload, with media of these kinds at its end.

    - ``first``, ``again`` and ``longer`` share two blocks of a prefix, one after the other.
    - ``grow-*`` run together and all cross a block boundary while decoding: preemptions. The earlier
      ones matter less, so that under the priority policy a victim has had its turn in the same step.
    - ``short``, ``tail`` and ``one`` are mixed lengths; ``three`` is longer than a chunk.
    - ``gives-up-*`` are aborted while waiting, while decoding, and while their prompt is computed.
    - ``flood-*`` push the shared prefix out of the cache; ``after-flood`` asks for it again.
    """
    step = Trigger
    lines: list[WorkloadRequest | WorkloadAbort] = [
        _request("first", step(at_step=0), ("system", 2, 0), ("first", 0.25, 3), output=6),
        _request("short", step(at_step=0), ("short", 0, 40), output=9),
        _request("one", step(at_step=1), ("one", 0, 1), output=1),
        _request("tail", step(at_step=1), ("tail", 1, -2), output=7),
        _request("again", step(after="first"), ("system", 2, 0), ("again", 0.5, 0), output=5),
        _request("longer", step(after="again"), ("system", 2, 0), ("again", 0.5, 0), ("longer", 0.5, 9), output=4),
        _request("repeat", step(after="longer"), ("system", 2, 0), ("again", 0.5, 0), output=3),
        _request("gives-up-decoding", step(at_step=2), ("gives-up", 0.75, 0), output=200),
        WorkloadAbort(kind="abort", id="gives-up-decoding", when=step(after="gives-up-decoding", event="first_token")),
    ]
    lines += [
        _request(f"grow-{i}", step(after="repeat"), (f"grow-{i}", 2, -4 - i), output=14 + 2 * i, priority=5 - i)
        for i in range(6)
    ]
    lines += [
        _request("gives-up-waiting", step(after="repeat"), ("gives-up-waiting", 3, 0), output=5),
        WorkloadAbort(kind="abort", id="gives-up-waiting", when=step(after="grow-0", event="first_token")),
        _request("three", step(after="grow-5"), ("three", 3, 17), output=5),
        _request("gives-up-prompt", step(after="three", event="first_token"), ("prompt", 3.25, 0), output=5),
        WorkloadAbort(kind="abort", id="gives-up-prompt", when=step(after="three")),
    ]
    lines += [_request(f"flood-{i}", step(after="three"), (f"flood-{i}", 2.5, 11 * i), output=3 + i) for i in range(5)]
    lines += [
        _request("after-flood", step(after="flood-4"), ("system", 2, 0), ("after", 0.25, 0), output=4),
        _request("pair-a", step(after="after-flood"), ("system", 2, 0), ("pair", 0.25, 1), output=4),
        _request("pair-b", step(after="after-flood"), ("system", 2, 0), ("pair", 0.25, 1), output=4),
    ]
    lines += media_lines(media, after="pair-b")
    return check_workload(lines, "smoke")
