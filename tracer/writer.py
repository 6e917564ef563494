"""The writer thread: chunks to Arrow IPC streams, in segments.

It calls only what releases the interpreter lock for its real work: numpy copies of
integers, Arrow writes and compression. It never touches the engine.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vstate.schemas.manifests import PRIVATE_FILE_MODE, ClosingCounts
from vstate.schemas.table import Table
from vstate.schemas.tables import TABLES
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.snapshot import SnapshotKind
from vstate.tracer.memory_log import MemoryLog
from vstate.tracer.recorder import HASH_BYTES, Chunk, ChunkQueue, cell_width
from vstate.tracer.siphash import siphash

LOGGER = logging.getLogger("vllm.vstate")
POLL_SECONDS = 0.25
"""Pause of an idle writer. Each waking takes the interpreter lock from the scheduler for a moment, so it is
rare; a chunk is handed over no more than twice a second while the engine runs."""
SEGMENT_BYTES = 64 * 1024 * 1024
"""Bytes of a segment's streams before the next one is begun."""
SEGMENT_SECONDS = 600.0
"""Age of a segment before the next one is begun."""
STALL_SECONDS = 5.0
"""Longest wait at the end for a disk that takes nothing; an engine that ends must not be held up by it."""
CLOSE_SECONDS = 30.0
"""Longest wait at the end for a disk that is only slow."""

_HASHED_KIND = {"block": int(BlockKind.CACHE_INSERT), "snapshot": int(SnapshotKind.HASH)}
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


def stream_name(table: str, segment: int) -> str:
    """File name of a table's stream in a segment."""
    return f"{table}-{segment:04d}.arrows"


def to_batch(table: Table, chunk: tuple[bytes, bytes, bytes], secret: bytes) -> pa.RecordBatch:
    """Turn recorded cells into a record batch of the table's declared schema.

    Args:
        table: The table the cells belong to.
        chunk: Its cells, list values and raw block hashes.
        secret: Key of the run under which block hashes are written.
    """
    cells, values, raw_hashes = chunk
    matrix = np.frombuffer(cells, dtype=np.int64).reshape(-1, cell_width(table))
    lists = [index for index, column in enumerate(table.columns) if pa.types.is_list(column.type)]
    arrays: list[pa.Array] = []
    items = np.frombuffer(values, dtype=np.int32)
    for index, column in enumerate(table.columns):
        if index in lists:
            arrays.append(_list_column(matrix[:, index], items, lists.index(index), len(lists)))
        else:
            arrays.append(_array(matrix[:, index], column.type))
    if raw_hashes:
        hashes = siphash(np.frombuffer(raw_hashes, dtype=np.uint8).reshape(-1, HASH_BYTES), secret)
        _set_hashes(table, matrix, arrays, hashes)
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema())


def _array(numbers: np.ndarray[Any, np.dtype[np.signedinteger[Any]]], kind: pa.DataType) -> pa.Array:
    """An Arrow array over a contiguous copy of ``numbers``.

    Not through ``pa.array``, which imports pandas for the first numpy array it sees: 0.2 s with the
    interpreter lock held, in the middle of serving.
    """
    data = np.ascontiguousarray(numbers, dtype=f"i{kind.bit_width // 8}")
    return pa.Array.from_buffers(kind, len(data), [None, pa.py_buffer(data)])


def _list_column(
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]],
    items: np.ndarray[tuple[int], np.dtype[np.int32]],
    index: int,
    lists: int,
) -> pa.Array:
    """One list column; several list columns of a table have equal lengths and alternate."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    if lists > 1:
        width = int(lengths[0]) if len(lengths) else 0
        items = items.reshape(-1, lists, max(width, 1))[:, index, :].reshape(-1)
    if offsets[-1] != len(items):
        # Arrow would read past the end of the values; a writer that stops is told, a crash is not.
        raise ValueError(f"{offsets[-1]} list values are announced, {len(items)} are there")
    return pa.ListArray.from_arrays(_array(offsets, pa.int32()), _array(items, pa.int32()))


def _set_hashes(
    table: Table,
    matrix: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    arrays: list[pa.Array],
    hashes: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> None:
    names = [column.name for column in table.columns]
    column = np.zeros(len(matrix), dtype=np.int64)
    column[matrix[:, names.index("kind")] == _HASHED_KIND[table.name]] = hashes
    arrays[names.index("block_hash")] = _array(column, pa.int64())


@dataclass
class Segment:
    """What the streams of one segment hold.

    Attributes:
        size_bytes: Bytes of its streams.
        rows: Rows per table.
    """

    size_bytes: int = 0
    rows: dict[str, int] = field(default_factory=dict)


class Writer:
    """Writes the chunks of one process into its folder until it is closed.

    All that touches the disk happens on its thread, which lives until it is closed, whatever fails before.
    """

    def __init__(
        self,
        folder: Path,
        queue: ChunkQueue | MemoryLog,
        secret: bytes,
        on_segment_full: Callable[[], None],
        on_failure: Callable[[str], None],
        max_disk_bytes: int = 0,
    ) -> None:
        """Prepare a writer; `start` begins it.

        Args:
            folder: Folder of the process; must exist.
            queue: Where the recorder puts chunks.
            secret: Key under which block hashes are written.
            on_segment_full: Called when the next snapshot should open a new segment.
            on_failure: Called once with the reason when writing has failed for good.
            max_disk_bytes: Bytes the process may keep; the oldest segments go first; 0 for no limit.
        """
        self._folder = folder
        self._queue = queue
        self._secret = secret
        self._on_segment_full = on_segment_full
        self._on_failure = on_failure
        self._max_disk_bytes = max_disk_bytes
        self._segment = 0
        self._segment_began = 0.0
        self._segment_asked = False
        self._snapshot_bytes = 0
        self._sinks: dict[str, tuple[pa.OSFile, pa.ipc.RecordBatchStreamWriter]] = {}
        self._segments: dict[int, Segment] = {}
        self._rows = dict.fromkeys(TABLES, 0)
        self._taken_rows = 0
        self._taken_chunks = 0
        self._written_chunks = 0
        self._deleted_rows = 0
        self._vanished_rows = 0
        self._progress = 0
        self._closing = threading.Event()
        self._finish: Callable[[], None] = lambda: None
        self._finish_error: BaseException | None = None
        self.error = ""
        self._thread = threading.Thread(target=self._run, name="vstate-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self, finish: Callable[[], None] = lambda: None) -> None:
        """Write what is queued and end; ``finish`` is what the writer's thread does last.

        Raises:
            TimeoutError: The disk takes nothing, or too little; the thread is left to itself.
            Exception: ``finish`` failed.
        """
        self._finish = finish
        self._closing.set()
        deadline = time.monotonic() + CLOSE_SECONDS
        while self._thread.is_alive():
            before = self._progress
            self._thread.join(STALL_SECONDS)
            if self._thread.is_alive() and (self._progress == before or time.monotonic() > deadline):
                self.error = self.error or f"the disk did not take the rest of the trace within {STALL_SECONDS:.0f} s"
                raise TimeoutError(self.error)
        if self._finish_error is not None:
            raise self._finish_error

    def counts(self, lost_chunks: int, lost_rows: int) -> ClosingCounts:
        """Return what was written and what was lost, once nothing is written any more.

        Args:
            lost_chunks: Chunks that were never handed over.
            lost_rows: Their rows.
        """
        while self._take() is not None:
            pass
        return ClosingCounts(
            rows=dict(self._rows),
            segments=self._segment,
            lost_chunks=lost_chunks + self._taken_chunks - self._written_chunks,
            lost_rows=lost_rows + self._taken_rows - sum(self._rows.values()) + self._vanished_rows,
            deleted_rows=self._deleted_rows,
            writer_error=self.error,
        )

    def _run(self) -> None:
        try:
            self._write_all()
        except BaseException as error:  # a thread that ended silently would be waited for, and never told of
            self._fail(error)
        self._closing.wait()
        try:
            self._finish()
        except BaseException as error:
            self._finish_error = error

    def _write_all(self) -> None:
        while True:
            closing = self._closing.is_set()
            chunk = self._take()
            if chunk is not None:
                self._write(chunk)
                self._written_chunks += 1
            elif closing:
                break
            else:
                self._closing.wait(POLL_SECONDS)
        self._close_segment()

    def _take(self) -> Chunk | None:
        chunk = self._queue.take()
        if chunk is not None:
            self._taken_chunks += 1
            self._taken_rows += chunk.rows
        return chunk

    def _fail(self, error: BaseException) -> None:
        """Stop for good, and leave what is written as it is: each stream is read to its last whole batch."""
        self.error = " ".join(f"{type(error).__name__}: {error}".split())
        for sink, _ in self._sinks.values():
            with suppress(Exception):
                sink.close()
        self._sinks = {}
        with suppress(Exception):
            self._vanished_rows = self._count_vanished()
        self._on_failure(self.error)

    def _count_vanished(self) -> int:
        """Rows in streams that somebody else deleted."""
        streams = ((number, table) for number, segment in self._segments.items() for table in segment.rows)
        gone = [(n, table) for n, table in streams if not (self._folder / stream_name(table, n)).exists()]
        return sum(self._segments[number].rows[table] for number, table in gone)

    def _write(self, chunk: Chunk) -> None:
        if chunk.starts_segment or not self._segment:
            self._next_segment()
        if chunk.names:
            self._write_batch("names", self._name_batch(chunk.names))
        for name, parts in chunk.tables.items():
            self._write_batch(name, to_batch(TABLES[name], parts, self._secret))
        if chunk.starts_segment:
            self._snapshot_bytes = self._segments[self._segment].size_bytes
        self._keep_limit()
        # A segment that its own snapshot fills would ask for the next one at once.
        full = self._segments[self._segment].size_bytes - self._snapshot_bytes >= self._segment_limit()
        old = time.monotonic() - self._segment_began >= SEGMENT_SECONDS
        if (full or old) and not self._segment_asked:
            self._segment_asked = True
            self._on_segment_full()

    def _segment_limit(self) -> int:
        return min(SEGMENT_BYTES, self._max_disk_bytes // 4) if self._max_disk_bytes else SEGMENT_BYTES

    def _keep_limit(self) -> None:
        """Delete the oldest segments until the limit is kept.

        Where the newest alone is beyond it, it goes too: the next snapshot waits behind what is queued.

        Raises:
            ValueError: There is no room for snapshots; asking for one after the other would stop the engine.
        """
        if not self._max_disk_bytes:
            return
        if self._snapshot_bytes > self._max_disk_bytes // 2:
            raise ValueError(
                f"a snapshot of this engine takes {self._snapshot_bytes} bytes, more than half of the disk limit "
                f"of {self._max_disk_bytes}; raise it"
            )
        self._delete_down_to(self._max_disk_bytes)
        if self._segments[self._segment].size_bytes > self._max_disk_bytes:
            self._next_segment()
            self._segment_asked = True
            self._on_segment_full()

    @staticmethod
    def _name_batch(names: list[tuple[int, int, int, str]]) -> pa.RecordBatch:
        schema = TABLES["names"].schema()
        *numbers, values = zip(*names, strict=True)
        # A client may send what is no Unicode text, such as half a surrogate pair.
        texts = [value.encode("utf-8", "backslashreplace").decode() for value in values]
        arrays = [pa.array(list(c), type=f.type) for c, f in zip([*numbers, texts], schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _write_batch(self, table: str, batch: pa.RecordBatch) -> None:
        sink, stream = self._sinks.get(table) or self._open(table)
        before = sink.tell()
        stream.write_batch(batch)
        self._check_present(table)
        segment = self._segments[self._segment]
        segment.size_bytes += sink.tell() - before
        segment.rows[table] = segment.rows.get(table, 0) + batch.num_rows
        self._rows[table] += batch.num_rows
        self._progress += 1

    def _check_present(self, table: str) -> None:
        """Fail where a stream was deleted: writing to it succeeds, and what is written is nowhere."""
        os.stat(self._folder / stream_name(table, self._segment))

    def _open(self, table: str) -> tuple[pa.OSFile, pa.ipc.RecordBatchStreamWriter]:
        path = self._folder / stream_name(table, self._segment)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE_MODE))
        sink = pa.OSFile(str(path), "wb")
        opened = (sink, pa.ipc.new_stream(sink, TABLES[table].schema(), options=_OPTIONS))
        self._sinks[table] = opened
        return opened

    def _next_segment(self) -> None:
        self._close_segment()
        self._segment += 1
        self._segment_began = time.monotonic()
        self._segment_asked = False
        self._snapshot_bytes = 0
        self._segments[self._segment] = Segment()
        if self._max_disk_bytes:
            self._delete_down_to(self._max_disk_bytes - self._segment_limit())

    def _delete_down_to(self, limit_bytes: int) -> None:
        """Delete the oldest segments, but never the one that is being written."""
        while len(self._segments) > 1 and sum(s.size_bytes for s in self._segments.values()) > limit_bytes:
            self._delete_segment(min(self._segments))

    def _delete_segment(self, number: int) -> None:
        if not self._deleted_rows:
            LOGGER.warning(
                "vstate: the trace has reached its disk limit of %d bytes; the oldest events are deleted",
                self._max_disk_bytes,
            )
        for table in TABLES:
            (self._folder / stream_name(table, number)).unlink(missing_ok=True)
        self._deleted_rows += sum(self._segments.pop(number).rows.values())

    def _close_segment(self) -> None:
        for table, (sink, stream) in self._sinks.items():
            self._check_present(table)
            before = sink.tell()
            stream.close()
            self._segments[self._segment].size_bytes += sink.tell() - before
            sink.close()
        self._sinks = {}
        self._progress += 1
