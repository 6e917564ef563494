"""Says which lines of a workload are due: at a step, at a moment, or after what happened to another request."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from vstate.schemas.workload import WorkloadAbort, WorkloadRequest

Line = WorkloadRequest | WorkloadAbort
Event = tuple[str, str]


class Arrivals:
    """The lines that are still to come.

    A workload in which every line waits for a moment, in their order, is read as it goes; any other is
    held whole, because a line may wait for anything before it in the file or behind it. Each line is let
    go when it is due.
    """

    def __init__(
        self, lines: Iterable[Line], *, in_order_of_time: bool = False, referenced: Iterable[str] = ()
    ) -> None:
        """Wait for lines.

        Args:
            lines: The workload.
            in_order_of_time: Each has an ``at_s`` that is no earlier than the last one's; they are read as they go.
            referenced: Requests that lines refer to, where they are read as they go: what happens to one of them must
                be known when the line comes.
        """
        self._stream = enumerate(lines)
        self._in_order = in_order_of_time
        self._by_step: list[tuple[int, int, Line]] = []
        self._by_time: list[tuple[float, int, Line]] = []
        self._after: dict[Event, list[tuple[int, Line]]] = {}
        self._due: list[tuple[int, Line]] = []
        self._happened: set[Event] = set()
        self._referenced: set[str] = set(referenced)
        if in_order_of_time:
            self._read_one()
        else:
            for number, line in self._stream:
                self._wait(number, line)

    def __bool__(self) -> bool:
        """Whether a line is still to come."""
        return bool(self._by_step or self._by_time or self._after or self._due)

    @property
    def next_time(self) -> float | None:
        """Moment in seconds at which the next line is due by itself; None where none is."""
        return self._by_time[0][0] if self._by_time else None

    @property
    def waits_for_a_step(self) -> bool:
        """Whether a line waits for a number of steps, which pass even where nothing runs."""
        return bool(self._by_step)

    def happened(self, request_id: str, event: str, seconds: float) -> None:
        """Note an event of a request at a moment; only the first of its kind counts."""
        if request_id not in self._referenced or (request_id, event) in self._happened:
            return
        self._happened.add((request_id, event))
        for number, line in self._after.pop((request_id, event), ()):
            self._release(number, line, seconds)

    def has_ended(self, request_id: str) -> bool:
        """Whether a request that another line refers to has ended."""
        return (request_id, "finish") in self._happened

    def due(self, step: int, seconds: float) -> list[Line]:
        """Return the lines that are due, in the order of the workload, and let them go."""
        while self._by_step and self._by_step[0][0] <= step:
            _, number, line = heapq.heappop(self._by_step)
            self._due.append((number, line))
        while self._by_time and self._by_time[0][0] <= seconds:
            _, number, line = heapq.heappop(self._by_time)
            self._due.append((number, line))
            if self._in_order:
                self._read_one()
        found = [line for _, line in sorted(self._due, key=lambda item: item[0])]
        self._due.clear()
        return found

    def _read_one(self) -> None:
        for number, line in self._stream:
            self._wait(number, line)
            return

    def _wait(self, number: int, line: Line) -> None:
        when = line.when
        if isinstance(line, WorkloadAbort):
            self._referenced.add(line.id)
        if when.at_step is not None:
            heapq.heappush(self._by_step, (when.at_step, number, line))
        elif when.at_s is not None:
            heapq.heappush(self._by_time, (when.at_s, number, line))
        else:
            self._referenced.add(str(when.after))
            self._after.setdefault((str(when.after), when.event), []).append((number, line))

    def _release(self, number: int, line: Line, seconds: float) -> None:
        if line.when.delay_s:
            heapq.heappush(self._by_time, (seconds + line.when.delay_s, number, line))
        else:
            self._due.append((number, line))
