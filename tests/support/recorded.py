"""The real recorder and the real writer, alone and under the tiny engine: no vLLM is needed to make them fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from support.scenarios import LAYOUTS
from support.tiny_engine import TinyEngine
from support.traces import Row, TraceLog, run_manifest
from vstate.schemas.manifests import EVENTS_FOLDER, PROCESS_FILE, RUN_FILE, ClosingCounts, write_manifest
from vstate.schemas.tables import TABLES
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.names import NameKind
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.tables.snapshot import SnapshotKind
from vstate.tracer.outcome import stream_batches
from vstate.tracer.recorder import Chunk, ChunkQueue, Recorder, SnapshotRow
from vstate.tracer.writer import Writer

SECRET = bytes(16)
LONGEST_WAIT_SECONDS = 60


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition, however busy the machine is."""
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.001)


class CountingQueue(ChunkQueue):
    """A queue that knows how many chunks were ever put into it."""

    chunks = 0

    def put(self, chunk: Chunk) -> None:
        self.chunks += 1
        super().put(chunk)


class RecordedTrace:
    """A recorder and a writer, as a session wires them."""

    def __init__(self, folder: Path, max_disk_bytes: int = 0) -> None:
        self.folder = folder
        self.queue = CountingQueue()
        self.recorder = Recorder(self.queue, pools=1)
        self.failures: list[str] = []
        self.told_behind: list[int] = []
        self.recorder.on_behind = self.told_behind.append
        self.writer = Writer(folder, self.queue, SECRET, self.want_segment, self.failed, max_disk_bytes=max_disk_bytes)

    def want_segment(self) -> None:
        self.recorder.segment_wanted = True

    def failed(self, error: str) -> None:
        self.recorder.writer_alive = False
        self.failures.append(error)

    def snapshot(self) -> None:
        self.recorder.repeat_names()
        self.recorder.snapshot_row(SnapshotKind.BEGIN, SnapshotRow(lost_from_step=self.recorder.lost_from_step))
        self.recorder.snapshot_row(SnapshotKind.END)

    def boundary(self, *, idle: bool = False) -> None:
        self.recorder.boundary(time.monotonic_ns(), self.snapshot, idle=idle)

    def step(self, rows: int = 1) -> None:
        self.recorder.step += 1
        for _ in range(rows):
            self.recorder.blocks(BlockKind.ALLOC, 0, 0, 1, [self.recorder.step])
        self.boundary()

    def settle(self) -> None:
        """Wait until the writer has written everything, or has failed."""
        wait_until(lambda: self.failures or self.writer._written_chunks == self.queue.chunks, "an idle writer")

    def finish(self) -> ClosingCounts:
        self.recorder.hand_over(time.monotonic_ns())
        self.writer.close()
        return self.counts()

    def counts(self) -> ClosingCounts:
        return self.writer.counts(self.recorder.lost_chunks, self.recorder.lost_rows)

    def rows(self, table: str) -> list[dict[str, Any]]:
        files = sorted(self.folder.glob(f"{table}-*.arrows"))
        return [row for path in files for batch in stream_batches(path) for row in batch.to_pylist()]

    def rows_on_disk(self) -> int:
        return sum(len(self.rows(table)) for table in TABLES)


class RecorderLog(TraceLog):
    """A log of the tiny engine that is written by the real recorder."""

    def __init__(self, recorder: Recorder, at_boundary: Callable[[], None]) -> None:
        super().__init__()
        self._recorder = recorder
        self._at_boundary = at_boundary

    def add(self, table: str, **cells: Any) -> Row:
        row = super().add(table, **cells)
        # The recorder numbers rows itself.
        self.rows.clear()
        self._recorder.step = self.step
        columns = TABLES[table].columns[1:]
        values: list[int] = []
        numbers = []
        for column in columns:
            value = row.cells[column.name]
            if pa.types.is_list(column.type):
                values += value
                value = len(value)
            numbers.append(int(value))
        raw = b""
        if (table, row.cells.get("kind")) in (("block", BlockKind.CACHE_INSERT), ("snapshot", SnapshotKind.HASH)):
            raw = row.cells["block_hash"].to_bytes(32, "big") + bytes(4)
            numbers[[column.name for column in columns].index("block_hash")] = 0
        self._recorder.row(table, *numbers, values=values, raw=raw)
        return row

    def name(self, key: int, value: str, kind: NameKind = NameKind.EXTERNAL) -> None:
        entry = self._recorder.new_request(value)
        assert (entry.key, kind) == (key, NameKind.EXTERNAL)

    def request(self, kind: RequestKind, key: int, **cells: int) -> None:
        super().request(kind, key, **cells)
        if kind in (RequestKind.FINISH, RequestKind.ABORT):
            live = self._recorder.requests
            del live[next(name for name, entry in live.items() if entry.key == key)]

    def boundary(self, *arguments: Any, **cells: int) -> None:
        super().boundary(*arguments, **cells)
        self._at_boundary()


class RecordedEngine(TinyEngine):
    """The tiny engine, traced into a run that reconcile reads."""

    def __init__(self, run: Path, layout: int = 1, seed: int = 0, max_disk_bytes: int = 0) -> None:
        super().__init__(*LAYOUTS[layout], seed)
        self.run = run
        folder = run / EVENTS_FOLDER / "engine-dp0-pp0-tp0-1-1"
        folder.mkdir(parents=True)
        write_manifest(run / RUN_FILE, run_manifest())
        write_manifest(folder / PROCESS_FILE, self.manifest)
        self.trace = RecordedTrace(folder, max_disk_bytes)
        recorder = self.trace.recorder
        self.log = RecorderLog(recorder, self.hand_over)
        for pool in self.pools:
            pool.log = self.log
        self.trace.snapshot = self._take_snapshot
        self.hand_over()

    def hand_over(self) -> None:
        self.trace.boundary()

    def _take_snapshot(self) -> None:
        self.trace.recorder.repeat_names()
        self.snapshot(self.trace.recorder.lost_from_step)

    def serve(self, steps: int, each: Callable[[], None] = lambda: None) -> None:
        """Let drawn requests come and go."""
        draw = self.random
        for _ in range(steps):
            if draw.random() < 0.5 and len(self.waiting) < 4:
                self.arrive(draw.randint(1, 40), draw.randint(1, 12), family=draw.randrange(3))
            self.step(chunk=draw.choice((3, 8, 16)))
            each()

    def end(self) -> ClosingCounts:
        """End as a session does: with a last snapshot, and the closing counts in `process.json`."""
        recorder = self.trace.recorder
        recorder.snapshot_wanted = True
        self.hand_over()
        recorder.hand_over(time.monotonic_ns())
        self.trace.writer.close(self._write_counts)
        return self.trace.counts()

    def _write_counts(self) -> None:
        closed = self.manifest.model_copy(update={"closing": self.trace.counts()})
        write_manifest(self.trace.folder / PROCESS_FILE, closed)


def sequence_numbers(rows: Sequence[dict[str, Any]]) -> list[int]:
    """The numbers of rows, sorted."""
    return sorted(row["seq"] for row in rows)
