"""The writer thread: chunks to Arrow IPC streams, in segments.

It calls only what releases the interpreter lock for its real work: numpy copies of
integers, Arrow writes and compression. It never touches the engine.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vstate.schemas.manifests import PRIVATE_FILE_MODE, ClosingCounts
from vstate.schemas.table import Table
from vstate.schemas.tables import TABLES
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.snapshot import SnapshotKind
from vstate.tracer.recorder import HASH_BYTES, Chunk, ChunkQueue, cell_width
from vstate.tracer.siphash import siphash

POLL_SECONDS = 0.25
"""Pause of an idle writer. Each waking takes the interpreter lock from the scheduler for a moment, so it is
rare; a chunk is handed over no more than twice a second while the engine runs."""
SEGMENT_BYTES = 64 * 1024 * 1024
"""Bytes of a segment's streams before the next one is begun."""
SEGMENT_SECONDS = 600.0
"""Age of a segment before the next one is begun."""

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


class Writer:
    """Writes the chunks of one process into its folder until it is closed."""

    def __init__(
        self,
        folder: Path,
        queue: ChunkQueue,
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
        self._segment_bytes: dict[int, int] = {}
        self._rows = dict.fromkeys(TABLES, 0)
        self._closing = False
        self.error = ""
        self._thread = threading.Thread(target=self._run, name="vstate-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self, timeout_seconds: float = 30.0) -> bool:
        """Write what is queued and end; False where that took too long."""
        self._closing = True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def counts(self, lost_chunks: int, lost_rows: int) -> ClosingCounts:
        """Return what was written and what was lost."""
        return ClosingCounts(
            rows=dict(self._rows),
            segments=self._segment,
            lost_chunks=lost_chunks,
            lost_rows=lost_rows,
            writer_error=self.error,
        )

    def _run(self) -> None:
        try:
            while True:
                closing = self._closing
                chunk = self._queue.take()
                if chunk is None:
                    if closing:
                        break
                    time.sleep(POLL_SECONDS)
                    continue
                self._write(chunk)
            self._close_segment()
        except Exception as error:  # a tracer's fault must never reach the engine
            self.error = f"{type(error).__name__}: {error}"
            self._on_failure(self.error)

    def _write(self, chunk: Chunk) -> None:
        if chunk.starts_segment or not self._segment:
            self._next_segment()
        if chunk.names:
            self._write_batch("names", self._name_batch(chunk.names))
        for name, parts in chunk.tables.items():
            self._write_batch(name, to_batch(TABLES[name], parts, self._secret))
        if chunk.starts_segment:
            self._snapshot_bytes = self._segment_bytes[self._segment]
        # A segment that its own snapshot fills would ask for the next one at once.
        full = self._segment_bytes[self._segment] - self._snapshot_bytes >= self._segment_limit()
        old = time.monotonic() - self._segment_began >= SEGMENT_SECONDS
        if (full or old) and not self._segment_asked:
            self._segment_asked = True
            self._on_segment_full()

    def _segment_limit(self) -> int:
        return min(SEGMENT_BYTES, self._max_disk_bytes // 4) if self._max_disk_bytes else SEGMENT_BYTES

    @staticmethod
    def _name_batch(names: list[tuple[int, int, int, str]]) -> pa.RecordBatch:
        schema = TABLES["names"].schema()
        columns = zip(*names, strict=True)
        arrays = [pa.array(list(c), type=f.type) for c, f in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _write_batch(self, table: str, batch: pa.RecordBatch) -> None:
        sink, stream = self._sinks.get(table) or self._open(table)
        before = sink.tell()
        stream.write_batch(batch)
        self._segment_bytes[self._segment] += sink.tell() - before
        self._rows[table] += batch.num_rows

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
        self._segment_bytes[self._segment] = 0
        while self._max_disk_bytes and len(self._segment_bytes) > 1:
            if sum(self._segment_bytes.values()) + self._segment_limit() <= self._max_disk_bytes:
                break
            self._delete_segment(min(self._segment_bytes))

    def _delete_segment(self, segment: int) -> None:
        for table in TABLES:
            (self._folder / stream_name(table, segment)).unlink(missing_ok=True)
        del self._segment_bytes[segment]

    def _close_segment(self) -> None:
        for sink, stream in self._sinks.values():
            stream.close()
            sink.close()
        self._sinks = {}
