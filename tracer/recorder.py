"""The recorder: what hooks write to, on the scheduler's thread.

A row is one `struct.pack` of 64-bit cells appended to a `bytearray`: four times as fast
as extending an `array('q')` with a tuple (measured: 126 against 388 ns for four cells).
Nothing here locks, blocks, or does I/O; a full chunk is handed over through a `deque`.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from struct import Struct
from sys import getsizeof
from time import monotonic_ns
from typing import NamedTuple

from vstate.schemas.table import Table
from vstate.schemas.tables import TABLES
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.names import NameKind
from vstate.schemas.tables.snapshot import SnapshotKind
from vstate.schemas.vocabulary import NOT_APPLICABLE

CHUNK_BYTES = 256 * 1024
"""Rows of a chunk before it is handed over."""
CHUNK_NS = 500_000_000
"""Age of a chunk before it is handed over, while the engine runs."""
IDLE_NS = 100_000_000
"""Age of a chunk before an engine that falls idle hands it over; else light traffic makes a chunk a request."""
QUEUE_BYTES = 32 * 1024 * 1024
"""Bytes that may wait for the writer; what comes on top is dropped and counted."""
NAME_BYTES = 128
"""Memory of a row of `names` beside its text: a tuple and three integers."""
HASH_BYTES = 32
"""Bytes of a block hash that are kept; vLLM's default hash is SHA-256."""
NO_HASH = b""

_ONE_VALUE = Struct("i").pack
_CACHE_INSERT = int(BlockKind.CACHE_INSERT)


class Buffer:
    """Rows of one table that were not handed over yet.

    Attributes:
        row: Packs and appends one row of 64-bit cells.
        cells: All scalar cells, in column order.
        values: 32-bit values of the list columns, in row order.
        hashes: Raw block hashes of the rows that have one, in row order.
    """

    __slots__ = ("cells", "hashes", "pack", "table", "values")

    def __init__(self, table: Table, width: int) -> None:
        """Make an empty buffer whose rows have ``width`` cells."""
        self.table = table
        self.pack: Callable[..., bytes] = Struct(f"{width}q").pack
        self.cells = bytearray()
        self.values = bytearray()
        self.hashes = bytearray()

    def take(self) -> tuple[bytes, bytes, bytes]:
        """Return what was written and start anew; the bytearrays stay the same objects."""
        taken = (bytes(self.cells), bytes(self.values), bytes(self.hashes))
        self.cells.clear()
        self.values.clear()
        self.hashes.clear()
        return taken


@dataclass(frozen=True)
class Chunk:
    """What the recorder hands to the writer: all tables of a span of events.

    Attributes:
        tables: Per table its cells, list values and raw hashes.
        names: Rows of the table `names`: (seq, kind, key, value).
        starts_segment: Whether the chunk begins with a snapshot that opens a segment.
        rows: Rows in it, names included.
    """

    tables: dict[str, tuple[bytes, bytes, bytes]]
    names: list[tuple[int, int, int, str]]
    starts_segment: bool
    rows: int

    @cached_property
    def size_bytes(self) -> int:
        """Bytes it takes while it waits; a client's request id may have thousands."""
        cells = sum(len(part) for parts in self.tables.values() for part in parts)
        return cells + sum(name_bytes(row[3]) for row in self.names) + NAME_BYTES


def name_bytes(value: str) -> int:
    """Bytes that a row of `names` takes in memory."""
    return NAME_BYTES + getsizeof(value)


class ChunkQueue:
    """What waits for the writer. Each of its two counters is written by one thread only, so it needs no lock."""

    def __init__(self) -> None:
        """Make an empty queue."""
        self._chunks: deque[Chunk] = deque()
        self._put_bytes = 0
        self._taken_bytes = 0

    def has_room(self, share: float = 1.0) -> bool:
        """Say whether less than ``share`` of what may wait does."""
        return self._put_bytes - self._taken_bytes < QUEUE_BYTES * share

    def put(self, chunk: Chunk) -> None:
        """Add a chunk; on the scheduler's thread."""
        self._put_bytes += chunk.size_bytes
        self._chunks.append(chunk)

    def take(self) -> Chunk | None:
        """Return the oldest chunk, None where there is none; on the writer's thread."""
        try:
            chunk = self._chunks.popleft()
        except IndexError:
            return None
        self._taken_bytes += chunk.size_bytes
        return chunk

    def __len__(self) -> int:
        """Return how many chunks wait."""
        return len(self._chunks)


@dataclass
class RequestEntry:
    """What the recorder knows of a live request.

    Attributes:
        key: Its key in the trace.
        external: The id its client knows it by, where known.
        parent: The internal id it was fanned out from, where it was.
        attempt: Admissions so far.
        preempted: Whether its last admission ended by a preemption.
        refusals: Reasons already written for the attempt to come.
        refused_blocks: Blocks the gate asked for when it last refused; 0 where it did not.
    """

    key: int
    external: str = ""
    parent: str = ""
    attempt: int = 0
    preempted: bool = False
    refused_blocks: int = 0
    refusals: set[str] = field(default_factory=set)


class SnapshotRow(NamedTuple):
    """What a row of a snapshot says; the rest does not apply.

    ``request`` is (attempt, prompt, max, total, computed), all but the first in tokens.
    """

    lost_from_step: int = NOT_APPLICABLE
    pool: int = NOT_APPLICABLE
    group: int = NOT_APPLICABLE
    key: int = NOT_APPLICABLE
    request: tuple[int, int, int, int, int] = (NOT_APPLICABLE,) * 5
    free_blocks: int = NOT_APPLICABLE
    position: int = NOT_APPLICABLE
    entry_embeds: int = NOT_APPLICABLE
    free_embeds: int = NOT_APPLICABLE
    media: int = 0
    blocks: Sequence[int] = ()


NOTHING = SnapshotRow()


def cell_width(table: Table) -> int:
    """Cells of a row: one for each column; a list column's cell is its length."""
    return len(table.columns)


def tell_nobody(step: int) -> None:
    """Do nothing about events that are lost from ``step`` on."""


class Recorder:
    """Collects rows of all tables in one order and hands them over in chunks.

    Attributes:
        lost_rows: Rows that never reached the writer; each has a number that no table shows, or never got one.
        on_behind: Told the first step that lost events because the queue was full.
    """

    def __init__(self, queue: ChunkQueue, pools: int) -> None:
        """Record for an engine with ``pools`` block pools into ``queue``."""
        self.queue = queue
        self.pools = pools
        self.seq = 0
        self.step = 0
        self.requests: dict[str, RequestEntry] = {}
        self.reasons: dict[str, int] = {}
        self.lost_chunks = 0
        self.lost_rows = 0
        self.lost_from_step = NOT_APPLICABLE
        self.snapshot_wanted = True
        self.segment_wanted = True
        self.writer_alive = True
        self.on_behind: Callable[[int], None] = tell_nobody
        self._next_key = 0
        self._names: list[tuple[int, int, int, str]] = []
        self._names_bytes = 0
        self._next_snapshot_ns = 0
        self._chunk_first_step = 0
        self._next_flush_ns = 0
        self._starts_segment = False
        self._buffers = {name: Buffer(table, cell_width(table)) for name, table in TABLES.items() if name != "names"}
        block = self._buffers["block"]
        self._block_cells = block.cells.extend
        self._block_pack = block.pack
        self._block_values = block.values.extend
        self._block_hashes = block.hashes.extend

    # Names and keys

    def name(self, kind: NameKind, key: int, value: str) -> None:
        """Write what ``key`` stands for."""
        self.seq += 1
        self._names.append((self.seq, int(kind), key, value))
        self._names_bytes += name_bytes(value)

    def new_request(self, request_id: str, external: str = "", parent: str = "") -> RequestEntry:
        """Give an arriving request a key of its own."""
        entry = self.requests[request_id] = RequestEntry(self._next_key, external, parent)
        self._next_key += 1
        self._name_request(request_id, entry)
        return entry

    def _name_request(self, request_id: str, entry: RequestEntry) -> None:
        self.name(NameKind.REQUEST, entry.key, request_id)
        if entry.external:
            self.name(NameKind.EXTERNAL, entry.key, entry.external)
        if entry.parent:
            self.name(NameKind.PARENT, entry.key, entry.parent)

    def entry(self, request_id: str) -> RequestEntry:
        """Return the live request's entry; one that arrived before tracing gets a key now."""
        return self.requests.get(request_id) or self.new_request(request_id)

    def reason(self, text: str) -> int:
        """Return the key of a reason."""
        key = self.reasons.get(text)
        if key is None:
            key = self.reasons[text] = len(self.reasons)
            self.name(NameKind.REASON, key, text)
        return key

    # Rows

    def blocks(self, kind: int, pool: int, group: int, key: int, ids: Sequence[int]) -> None:
        """Write one call that changed blocks."""
        self.seq = seq = self.seq + 1
        count = len(ids)
        # All is packed before anything is kept: half a row would make the rest of its chunk unreadable.
        values = _ONE_VALUE(ids[0]) if count == 1 else array("i", ids)
        self._block_cells(self._block_pack(seq, self.step, kind, pool, group, key, -1, -1, 0, count))
        self._block_values(values)

    def cache_insert(self, pool: int, key: int, block: int, raw: bytes, position: int, verified: int) -> None:
        """Write that ``block`` can be found under the hash ``raw`` (with its group's four bytes)."""
        self.seq = seq = self.seq + 1
        group = int.from_bytes(raw[-4:], "big")
        cells = (seq, self.step, _CACHE_INSERT, pool, group, key, position, verified, 0, 1)
        value, digest = _ONE_VALUE(block), fixed_hash(raw)
        self._block_cells(self._block_pack(*cells))
        self._block_values(value)
        self._block_hashes(digest)

    def row(self, table: str, *cells: int, values: Sequence[int] = (), raw: bytes = NO_HASH) -> None:
        """Write one row of a table that is not written often; ``cells`` start after ``seq``."""
        buffer = self._buffers[table]
        self.seq += 1
        packed, digest = array("i", values), fixed_hash(raw) if raw else NO_HASH
        buffer.cells.extend(buffer.pack(self.seq, *cells))
        buffer.values.extend(packed)
        buffer.hashes.extend(digest)

    # Handing over

    def boundary(self, now_ns: int, snapshot: Callable[[], None], *, idle: bool = False) -> None:
        """Hand a chunk over at a step boundary, and take a snapshot where one is due.

        Args:
            now_ns: Time of the boundary.
            snapshot: Writes a snapshot of the engine into this recorder.
            idle: The engine has nothing left to do, so no later boundary may come soon.
        """
        if self.snapshot_wanted or self.segment_wanted:
            self._begin_segment(now_ns, snapshot)
        due_ns = self._next_flush_ns - (max(CHUNK_NS - IDLE_NS, 0) if idle else 0)
        if now_ns >= due_ns or self._is_large():
            self.hand_over(now_ns)

    def between_boundaries(self, now_ns: int) -> None:
        """Hand a chunk over that has grown large with no step in sight: requests may come and go at a paused engine."""
        if self._is_large():
            self.hand_over(now_ns)

    def _is_large(self) -> bool:
        buffers = self._buffers
        rows_bytes = len(buffers["block"].cells) + len(buffers["request"].cells)
        return rows_bytes + self._names_bytes >= CHUNK_BYTES

    def _begin_segment(self, now_ns: int, snapshot: Callable[[], None]) -> None:
        # What fails at every boundary would have the engine's tables copied at every boundary.
        too_soon = self.lost_from_step >= 0 and now_ns < self._next_snapshot_ns
        if too_soon or not self._has_room(share=0.5):
            return
        self.hand_over(monotonic_ns())
        self._next_snapshot_ns = now_ns + CHUNK_NS
        self._starts_segment = self.segment_wanted
        self.snapshot_wanted = self.segment_wanted = False
        snapshot()
        lost = self.lost_chunks
        self.hand_over(monotonic_ns())
        if self.lost_chunks == lost:
            self.lost_from_step = NOT_APPLICABLE

    def _has_room(self, share: float = 1.0) -> bool:
        return self.writer_alive and self.queue.has_room(share)

    def hand_over(self, now_ns: int) -> None:
        """Give everything recorded to the writer, or drop and count it where the writer is behind."""
        self._next_flush_ns = now_ns + CHUNK_NS
        taken = {name: buffer.take() for name, buffer in self._buffers.items() if buffer.cells}
        names, self._names, self._names_bytes = self._names, [], 0
        rows = len(names) + sum(len(cells) // (8 * cell_width(TABLES[name])) for name, (cells, _, _) in taken.items())
        first_step, self._chunk_first_step = self._chunk_first_step, self.step
        if not rows:
            return
        after_loss = self.lost_from_step >= 0 and "snapshot" not in taken
        if after_loss or not self._has_room():
            self._drop(rows, first_step)
            return
        self.queue.put(Chunk(taken, names, self._starts_segment, rows))
        self._starts_segment = False

    def _drop(self, rows: int, first_step: int) -> None:
        """Count what is lost. Names go with their rows: the snapshot that ends the loss repeats all that live."""
        if self.lost_from_step < 0:
            self.lost_from_step = first_step
            if self.writer_alive:
                self.on_behind(first_step)
        self.lost_rows += rows
        self.lost_chunks += 1
        self.snapshot_wanted = True
        self.segment_wanted = self.segment_wanted or self._starts_segment
        self._starts_segment = False

    def lose(self) -> None:
        """Note that an event could not be recorded: replay must start again from a snapshot.

        The rest of the chunk goes with it, so the gap begins where the chunk does.
        """
        self.lost_rows += 1
        if self.lost_from_step < 0:
            self.lost_from_step = self._chunk_first_step
        self.snapshot_wanted = True

    def repeat_names(self) -> None:
        """Write all names that live rows may refer to again, for a segment that stands alone."""
        for request_id, entry in self.requests.items():
            self._name_request(request_id, entry)
        for text, key in self.reasons.items():
            self.name(NameKind.REASON, key, text)

    def snapshot_row(self, kind: SnapshotKind, row: SnapshotRow = NOTHING, raw: bytes = NO_HASH) -> None:
        """Write one row of a snapshot."""
        place = (row.lost_from_step, row.pool, row.group, row.key, *row.request, row.free_blocks, row.position)
        cells = (*place, row.entry_embeds, row.free_embeds, row.media, 0)
        self.row("snapshot", self.step, kind, *cells, len(row.blocks), values=row.blocks, raw=raw)


def fixed_hash(raw: bytes) -> bytes:
    """Return a hash without its group's four bytes, brought to `HASH_BYTES`."""
    digest = raw[:-4]
    return digest if len(digest) == HASH_BYTES else digest[:HASH_BYTES].ljust(HASH_BYTES, b"\0")
