"""Rows of the table `memory` on their way to the writer, from any thread of a process."""

from __future__ import annotations

from collections import deque
from struct import Struct
from time import monotonic_ns

from vstate.schemas.tables.memory import MEMORY, MemoryKind, MemoryPhase
from vstate.schemas.vocabulary import NOT_APPLICABLE
from vstate.tracer.recorder import Chunk

ROW_LIMIT = 100_000
"""Rows that may wait for the writer; what comes on top is dropped and counted."""
_ROW = Struct(f"{len(MEMORY.columns)}q")


class MemoryLog:
    """A queue of rows. Appending to a `deque` is atomic, so several threads may write without a lock.

    The writer gives the rows their `seq` when it takes them.
    """

    def __init__(self) -> None:
        """Make an empty log."""
        self._rows: deque[tuple[int, ...]] = deque()
        self._seq = 0
        self._segment_wanted = True
        self.lost_rows = 0

    def want_segment(self) -> None:
        """Let the next chunk open a segment: each row stands alone, so any chunk can."""
        self._segment_wanted = True

    def put(
        self,
        kind: MemoryKind,
        phase: MemoryPhase,
        component: int,
        component_bytes: int,
        media: int = 0,
        entry_embeds: int = NOT_APPLICABLE,
    ) -> None:
        """Write one row."""
        if len(self._rows) >= ROW_LIMIT:
            self.lost_rows += 1
            return
        self._rows.append((monotonic_ns(), kind, phase, component, component_bytes, media, entry_embeds))

    def take(self) -> Chunk | None:
        """Return what waits as a chunk, None where nothing does; on the writer's thread."""
        cells = bytearray()
        first = self._seq
        while self._rows:
            self._seq += 1
            cells += _ROW.pack(self._seq, *self._rows.popleft())
        if not cells:
            return None
        starts_segment, self._segment_wanted = self._segment_wanted, False
        return Chunk({MEMORY.name: (bytes(cells), b"", b"")}, [], starts_segment, rows=self._seq - first)
