"""Which parts of a run can be replayed: epochs between snapshots, and the gaps between them.

All rows of a process are numbered by one counter without holes, so a number that no table has is a
lost row. An epoch starts from a snapshot and lasts up to the first number that is missing, or that a
later snapshot tells to be lost; the next snapshot after it starts another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vstate.reconcile.cache import StreamPart

END_OF_TRACE = 2**63 - 1
"""`last_seq` of an epoch that nothing cuts short."""

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Snapshot:
    """Extent of a snapshot.

    Attributes:
        end_seq: None for one that was cut.
        hole_seq: The last number before the first one from `begin_seq` on that no table has.
    """

    step: int
    begin_seq: int
    end_seq: int | None
    lost_from_step: int
    hole_seq: int


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
    """What can be replayed of one engine. A gap is its first and its last step."""

    epochs: tuple[Epoch, ...]
    checkpoints: tuple[Checkpoint, ...]
    gaps: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Loss:
    """What a snapshot at `until_seq` tells: events after `after_seq` were lost from a step on."""

    after_seq: int
    until_seq: int
    first_step: int


def find_holes(connection: Any, engine: int, parts: list[StreamPart]) -> None:
    """Add the holes in the numbers of one engine to the table ``number_holes``."""
    filled = [part for part in parts if part.rows]
    if not filled:
        return
    # Of a process whose oldest segments were deleted nothing tells where the numbers begin.
    before = min(part.first_seq for part in filled) - 1 if _head_lost(parts) else 0
    if max(part.last_seq for part in filled) - before == sum(part.rows for part in filled):
        return
    connection.execute(
        "INSERT INTO number_holes SELECT engine, seq, next_seq FROM ("
        "SELECT engine, seq, lead(seq) OVER (ORDER BY seq) AS next_seq "
        "FROM (SELECT engine, seq FROM trace_numbers UNION ALL SELECT $engine, $before) "
        "WHERE engine = $engine) WHERE next_seq > seq + 1",
        {"engine": engine, "before": before},
    )


def find_extent(connection: Any, engine: int, parts: list[StreamPart], trusted: bool) -> Extent:
    """Divide the events of one engine into epochs and gaps.

    Args:
        connection: DuckDB connection with the ``trace_*`` views and the table ``number_holes``.
        engine: Number of the engine.
        parts: What is known of its streams.
        trusted: Whether everything that the process wrote is known to be there.
    """
    trace = _Trace(connection, engine)
    snapshots = trace.snapshots()
    whole = [s for s in snapshots if s.end_seq is not None and s.hole_seq >= s.end_seq]
    losses = _losses(trace, snapshots, whole)
    numbers_end = max((part.last_seq for part in parts), default=-1)
    division = _Division(engine, trace, losses, trusted, _head_lost(parts))
    for snapshot in whole:
        division.add(snapshot)
    division.close(numbers_end)
    return Extent(tuple(division.epochs), tuple(division.checkpoints), tuple(_joined(division.gaps)))


def _head_lost(parts: list[StreamPart]) -> bool:
    return min((part.segment for part in parts), default=1) > 1


class _Division:
    """Epochs, checkpoints and gaps, from one snapshot to the next."""

    def __init__(self, engine: int, trace: _Trace, losses: list[_Loss], trusted: bool, head_lost: bool) -> None:
        self._engine = engine
        self._trace = trace
        self._losses = losses
        self._trusted = trusted
        self._head_lost = head_lost
        self._passed = 0
        self._gap_losses = 0
        self._epoch_step = 1
        self._told = False
        self.epochs: list[Epoch] = []
        self.checkpoints: list[Checkpoint] = []
        self.gaps: list[tuple[int, int]] = []

    def add(self, snapshot: Snapshot) -> None:
        """Take a whole snapshot as a checkpoint, as the start of an epoch, or not at all."""
        begin_seq, end_seq = snapshot.begin_seq, snapshot.end_seq
        while self._passed < len(self._losses) and self._losses[self._passed].until_seq <= begin_seq:
            self._passed += 1
        lost_seq = self._losses[self._passed].after_seq if self._passed < len(self._losses) else END_OF_TRACE
        if lost_seq < begin_seq or end_seq is None:
            return
        if self.epochs and begin_seq <= self.epochs[-1].last_seq:
            self.checkpoints.append(Checkpoint(self._engine, self.epochs[-1].epoch, begin_seq, end_seq))
            return
        after_gap = bool(self.epochs) or self._lost_before(begin_seq)
        if after_gap and snapshot.step > 0:
            self.gaps.append((min(self._first_step(), snapshot.step), snapshot.step))
        last_seq = max(min(snapshot.hole_seq, lost_seq), end_seq)
        before_gap = last_seq < END_OF_TRACE or not self._trusted
        self.epochs.append(
            Epoch(self._engine, len(self.epochs), begin_seq, end_seq, last_seq, after_gap, before_gap),
        )
        self._gap_losses = self._passed
        self._epoch_step = max(1, snapshot.step)
        self._told = lost_seq <= snapshot.hole_seq and lost_seq < END_OF_TRACE

    def close(self, numbers_end: int) -> None:
        """Report what comes after the last epoch; `numbers_end` is the last number there is."""
        if self.epochs and self.epochs[-1].last_seq >= numbers_end:
            return
        self._passed = len(self._losses)
        steps = self._trace.first_and_last_step()
        if steps is not None:
            first = self._first_step() if self.epochs or not self._head_lost else steps[0]
            self.gaps.append((min(first, steps[1]), steps[1]))

    def _lost_before(self, begin_seq: int) -> bool:
        return self._head_lost or self._passed > 0 or self._trace.first_hole_seq() < begin_seq

    def _first_step(self) -> int:
        """Return the first step since the last epoch that cannot be checked to its end."""
        steps = [loss.first_step for loss in self._losses[self._gap_losses : self._passed]]
        if self.epochs and not self._told:
            completed = self._trace.last_completed_step(self.epochs[-1].last_seq)
            steps.append(max(self._epoch_step, completed + 1))
        return max(1, min(steps, default=1))


def _losses(trace: _Trace, snapshots: list[Snapshot], whole: list[Snapshot]) -> list[_Loss]:
    """Return the losses that snapshots tell of.

    A snapshot that was cut itself still tells that events were lost; the next whole one ends
    the loss.
    """
    losses = []
    refuges = {snapshot.begin_seq for snapshot in whole}
    lost: list[int] = []
    for snapshot in snapshots:
        if snapshot.lost_from_step >= 0:
            lost.append(snapshot.lost_from_step)
        if lost and snapshot.begin_seq in refuges:
            after_seq = min(trace.last_seq_before(min(lost)), snapshot.begin_seq - 1)
            losses.append(_Loss(after_seq, snapshot.begin_seq, min(lost)))
            lost = []
    if lost:
        losses.append(_Loss(trace.last_seq_before(min(lost)), END_OF_TRACE, min(lost)))
    return losses


def _joined(gaps: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join gaps between which no step is left: each step may have had a snapshot of its own."""
    joined: list[tuple[int, int]] = []
    for first, last in gaps:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (min(first, joined[-1][0]), max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


class _Trace:
    """The few questions about single events that dividing takes.

    Each is one scan of the trace, made when it is first asked; a trace without a loss needs only that
    of the snapshots.
    """

    def __init__(self, connection: Any, engine: int) -> None:
        self._connection = connection
        self._engine = engine
        self._order: tuple[Numbers, Numbers] | None = None
        self._completed: tuple[Numbers, Numbers] | None = None
        self._first_hole_seq: int | None = None

    def snapshots(self) -> list[Snapshot]:
        """Return all snapshots in their order."""
        marks = self._connection.execute(
            "SELECT mark.kind, mark.seq, mark.step, mark.lost_from_step, hole.after_seq "
            "FROM trace_snapshot AS mark ASOF LEFT JOIN number_holes AS hole "
            "ON mark.engine = hole.engine AND mark.seq <= hole.after_seq "
            "WHERE mark.engine = ? AND mark.kind IN ('begin', 'end') ORDER BY mark.seq",
            [self._engine],
        ).fetchall()
        found: list[Snapshot] = []
        for kind, seq, step, lost_from_step, hole_seq in marks:
            if kind == "begin":
                end_of_row = END_OF_TRACE if hole_seq is None else hole_seq
                found.append(Snapshot(step, seq, None, lost_from_step, end_of_row))
            elif found and found[-1].end_seq is None:
                begun = found.pop()
                found.append(Snapshot(begun.step, begun.begin_seq, seq, begun.lost_from_step, begun.hole_seq))
        return found

    def first_hole_seq(self) -> int:
        """Return the last number before the first one that is missing."""
        if self._first_hole_seq is None:
            ((found,),) = self._connection.execute(
                "SELECT min(after_seq) FROM number_holes WHERE engine = ?", [self._engine]
            ).fetchall()
            self._first_hole_seq = END_OF_TRACE if found is None else int(found)
        return self._first_hole_seq

    def last_seq_before(self, step: int) -> int:
        """Return the last event that certainly precedes the first one of `step`.

        `completed` rows name an earlier step than the one that has begun, so they do not tell.
        """
        if self._order is None:
            self._order = self._running_maximum("SELECT step, max(seq) FROM trace_order WHERE engine = ? GROUP BY step")
        return _value_at(self._order, step - 1)

    def last_completed_step(self, seq: int) -> int:
        """Return the last step that was completed at an event."""
        if self._completed is None:
            self._completed = self._running_maximum(
                "SELECT seq, step FROM trace_step WHERE engine = ? AND kind = 'completed'"
            )
        return _value_at(self._completed, seq)

    def first_and_last_step(self) -> tuple[int, int] | None:
        """Return the first and the last step that any event tells of; None without one."""
        ((first, last),) = self._connection.execute(
            "SELECT min(step), max(step) FROM (SELECT engine, step FROM trace_step "
            "UNION ALL SELECT engine, step FROM trace_order "
            "UNION ALL SELECT engine, step FROM trace_snapshot) WHERE engine = ? AND step > 0",
            [self._engine],
        ).fetchall()
        return None if first is None else (first, last)

    def _running_maximum(self, query: str) -> tuple[Numbers, Numbers]:
        """Return the places of a query and the largest value up to each."""
        columns = self._connection.execute(f"{query} ORDER BY 1", [self._engine]).fetchnumpy()
        places, values = (np.asarray(column, np.int64) for column in columns.values())
        return places, np.maximum.accumulate(values)


def _value_at(places_and_values: tuple[Numbers, Numbers], place: int) -> int:
    places, values = places_and_values
    found = int(np.searchsorted(places, place, side="right"))
    return int(values[found - 1]) if found else -1
