"""Which parts of a run can be replayed: epochs between snapshots, and the gaps between them.

An epoch starts from a snapshot and lasts as long as every event is known to be there. All rows of
a process are numbered by one counter without holes, so a number that no table has is a lost row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vstate.reconcile.cache import StreamPart

END_OF_TRACE = 2**63 - 1
"""`last_seq` of an epoch that nothing cuts short."""


@dataclass(frozen=True)
class Snapshot:
    """Extent of a snapshot; `end_seq` is None for one that was cut."""

    step: int
    begin_seq: int
    end_seq: int | None
    lost_from_step: int


@dataclass(frozen=True)
class Epoch:
    """Events with ``snapshot_end_seq < seq <= last_seq`` replay from the snapshot.

    Attributes:
        after_gap: Events before the snapshot were lost.
        before_gap: Events after `last_seq` were lost or cannot be told to be complete.
    """

    engine: int
    epoch: int
    snapshot_begin_seq: int
    snapshot_end_seq: int
    last_seq: int
    after_gap: bool
    before_gap: bool


@dataclass(frozen=True)
class Checkpoint:
    """A snapshot inside an epoch: replay must agree with it."""

    engine: int
    epoch: int
    begin_seq: int
    end_seq: int


@dataclass(frozen=True)
class Extent:
    """What can be replayed of one engine."""

    epochs: tuple[Epoch, ...]
    checkpoints: tuple[Checkpoint, ...]
    gaps: tuple[str, ...]


@dataclass(frozen=True)
class _Hole:
    """Nothing is known for certain after `after_seq` and before a snapshot at `until_seq`."""

    after_seq: int
    until_seq: int
    steps: tuple[int, int] | None


def find_extent(connection: Any, engine: int, parts: list[StreamPart], trusted: bool) -> Extent:
    """Divide the events of one engine into epochs and gaps.

    Args:
        connection: DuckDB connection with the ``trace_*`` views.
        engine: Number of the engine.
        parts: What is known of its streams.
        trusted: Whether the process said at its end that it wrote everything.
    """
    trace = _Trace(connection, engine)
    snapshots = _snapshots(trace)
    whole = [snapshot for snapshot in snapshots if snapshot.end_seq is not None]
    if not whole:
        steps = trace.steps_after(-1)
        return Extent((), (), (_gap(steps),) if steps else ())
    holes = [*_lost_chunks(trace, snapshots), *_cut_segments(trace, parts, whole)]
    if not trusted or any(part.truncated for part in parts):
        holes += _tail(trace, whole[-1])
    head_lost = min(part.segment for part in parts) > 1
    gaps = [_gap(hole.steps) for hole in sorted(holes, key=_hole_order) if hole.steps]
    if head_lost and whole[0].step > 0:
        gaps.insert(0, _gap((1, whole[0].step)))
    epochs = _epochs(engine, whole, holes, head_lost)
    starts = {epoch.snapshot_begin_seq for epoch in epochs}
    checkpoints = [
        Checkpoint(engine, epoch.epoch, snapshot.begin_seq, snapshot.end_seq)
        for epoch in epochs
        for snapshot in whole
        if epoch.snapshot_end_seq < snapshot.begin_seq <= epoch.last_seq
        and snapshot.end_seq is not None
        and snapshot.begin_seq not in starts
    ]
    return Extent(tuple(epochs), tuple(checkpoints), tuple(gaps))


def _epochs(engine: int, whole: list[Snapshot], holes: list[_Hole], head_lost: bool) -> list[Epoch]:
    refuges = {hole.until_seq for hole in holes}
    epochs: list[Epoch] = []
    for snapshot in whole:
        begin_seq, end_seq = snapshot.begin_seq, snapshot.end_seq
        starts = snapshot is whole[0] or begin_seq in refuges
        inside = any(hole.after_seq < begin_seq < hole.until_seq for hole in holes)
        if not starts or inside or end_seq is None:
            continue
        ahead = [hole.after_seq for hole in holes if hole.until_seq > begin_seq]
        last_seq = max(min(ahead), end_seq) if ahead else END_OF_TRACE
        after_gap = head_lost or bool(epochs) or begin_seq in refuges
        epochs.append(Epoch(engine, len(epochs), begin_seq, end_seq, last_seq, after_gap, bool(ahead)))
    return epochs


def _snapshots(trace: _Trace) -> list[Snapshot]:
    found: list[Snapshot] = []
    for kind, seq, step, lost_from_step in trace.snapshot_marks():
        if kind == "begin":
            found.append(Snapshot(step, seq, None, lost_from_step))
        elif found and found[-1].end_seq is None:
            begun = found.pop()
            found.append(Snapshot(begun.step, begun.begin_seq, seq, begun.lost_from_step))
    return found


def _lost_chunks(trace: _Trace, snapshots: list[Snapshot]) -> list[_Hole]:
    """Return the holes that snapshots tell of.

    A snapshot that was cut itself still tells that events were lost; the next whole one ends
    the hole.
    """
    holes = []
    lost: list[int] = []
    for snapshot in snapshots:
        if snapshot.lost_from_step >= 0:
            lost.append(snapshot.lost_from_step)
        if lost and snapshot.end_seq is not None:
            after_seq = trace.last_seq_before(min(lost), snapshot.begin_seq)
            holes.append(_Hole(after_seq, snapshot.begin_seq, (min(lost), snapshot.step)))
            lost = []
    return holes


def _cut_segments(trace: _Trace, parts: list[StreamPart], whole: list[Snapshot]) -> list[_Hole]:
    """Return the holes behind files that end in half a batch although later segments exist."""
    holes = []
    for segment in sorted({part.segment for part in parts if part.truncated}):
        later = [part.first_seq for part in parts if part.segment > segment and part.rows]
        later_seq = min(later, default=END_OF_TRACE)
        refuge = next((s for s in whole if s.begin_seq >= later_seq), None)
        start = next((s for s in reversed(whole) if s.begin_seq < later_seq), None)
        if refuge is None:
            continue
        after_seq = -1 if start is None else trace.last_seq_in_a_row(start.begin_seq)
        if after_seq >= refuge.begin_seq:
            continue
        steps = trace.steps_after(after_seq, refuge.begin_seq)
        first_step = steps[0] if steps else refuge.step
        holes.append(_Hole(after_seq, refuge.begin_seq, (first_step, refuge.step)))
    return holes


def _tail(trace: _Trace, last: Snapshot) -> list[_Hole]:
    """Return the hole at the end of a process that was killed, failed to write, or still writes.

    Its tables end at different events. All of them are there up to the first number that no
    table has, and what comes after the last one is not known.
    """
    after_seq = trace.last_seq_in_a_row(last.begin_seq)
    return [_Hole(after_seq, END_OF_TRACE, trace.steps_after(after_seq))]


def _hole_order(hole: _Hole) -> tuple[int, int]:
    return (hole.after_seq, hole.until_seq)


def _gap(steps: tuple[int, int]) -> str:
    return f"{steps[0]}..{steps[1]}"


class _Trace:
    """The few questions about single events that finding holes takes."""

    def __init__(self, connection: Any, engine: int) -> None:
        self._connection = connection
        self._engine = engine

    def snapshot_marks(self) -> list[tuple[str, int, int, int]]:
        """Return (kind, seq, step, lost_from_step) of the first and last rows of snapshots."""
        marks: list[tuple[str, int, int, int]] = self._connection.execute(
            "SELECT kind, seq, step, lost_from_step FROM trace_snapshot "
            "WHERE engine = ? AND kind IN ('begin', 'end') ORDER BY seq",
            [self._engine],
        ).fetchall()
        return marks

    def last_seq_before(self, step: int, seq: int) -> int:
        """Return the last event before `seq` that certainly precedes the first one of `step`.

        `completed` rows name an earlier step than the one that has begun, so they do not tell.
        """
        return self._number("SELECT max(seq) FROM trace_order WHERE engine = ? AND step < ? AND seq < ?", step, seq)

    def last_seq_in_a_row(self, seq: int) -> int:
        """Return the last event from `seq` on before a number that is in no table."""
        return self._number(
            "WITH numbers AS (SELECT seq, lead(seq) OVER (ORDER BY seq) AS next_seq FROM "
            "(SELECT DISTINCT seq FROM trace_numbers WHERE engine = ? AND seq >= ?)) "
            "SELECT min(seq) FROM numbers WHERE next_seq IS NULL OR next_seq > seq + 1",
            seq,
        )

    def steps_after(self, seq: int, before: int = END_OF_TRACE) -> tuple[int, int] | None:
        """Return the first and last step that events after `seq` tell of; None without one.

        An event that is no boundary tells of its step only if no boundary up to `seq` does.
        """
        ((first, last),) = self._connection.execute(
            "WITH known AS (SELECT coalesce(max(step), 0) AS step FROM trace_step "
            "WHERE engine = $engine AND seq <= $seq), "
            "later AS (SELECT step, seq FROM trace_step WHERE engine = $engine "
            "UNION ALL SELECT step, seq FROM trace_order "
            "WHERE engine = $engine AND step > (SELECT step FROM known)) "
            "SELECT min(step), max(step) FROM later WHERE seq > $seq AND seq < $before",
            {"engine": self._engine, "seq": seq, "before": before},
        ).fetchall()
        return None if first is None else (first, last)

    def _number(self, query: str, *values: int) -> int:
        ((found,),) = self._connection.execute(query, [self._engine, *values]).fetchall()
        return -1 if found is None else int(found)
