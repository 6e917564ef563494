"""Faults of the tracer itself: serving goes on, the loss is counted to the row, and what is left gives no finding."""

import ctypes
import json
import resource
import shutil
import struct
import threading
import time
from contextlib import contextmanager

import pytest

from support.recorded import RecordedEngine, RecordedTrace, wait_until
from support.traces import serious
from vstate.reconcile.job import reconcile_run
from vstate.schemas.manifests import PROCESS_FILE, ProcessManifest, read_manifest, write_manifest
from vstate.schemas.tables.block import BlockKind
from vstate.tracer import recorder as recorder_module
from vstate.tracer import writer as writer_module

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(writer_module, "POLL_SECONDS", 0.005)
    monkeypatch.setattr(recorder_module, "CHUNK_NS", 0)
    # The tiny engine decides by a die, so no formula bounds it: these tests are about replay.
    monkeypatch.setattr("vstate.reconcile.estimates.formulas", lambda: {"vstate": lambda *_: 1000})


@pytest.fixture
def engine(tmp_path):
    return RecordedEngine(tmp_path / "run")


@contextmanager
def largest_file(size_bytes):
    """Let the kernel refuse to make any file larger, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Gate:
    """A disk that hangs in the middle of a write while the gate is shut."""

    def __init__(self, writer, monkeypatch):
        self._open = threading.Event()
        self._open.set()
        self.waiting = threading.Event()
        write = writer._write_batch

        def hanging(table, batch):
            if not self._open.is_set():
                self.waiting.set()
            assert self._open.wait(60)
            write(table, batch)

        monkeypatch.setattr(writer, "_write_batch", hanging)

    def shut(self):
        self._open.clear()

    def open(self):
        self._open.set()


def check_what_is_left(engine, counts, most_uncounted=0):
    """Every number is on disk or counted as lost, and reconcile claims nothing that it cannot know."""
    assert counts.lost_rows > 0
    assert sum(counts.rows.values()) + counts.lost_rows == engine.trace.recorder.seq
    assert 0 <= engine.trace.rows_on_disk() - sum(counts.rows.values()) <= most_uncounted
    summary = reconcile_run(engine.run)
    assert serious(summary) == []
    assert summary.verdict == "incomplete"
    return summary


def closing(engine):
    return read_manifest(engine.trace.folder / PROCESS_FILE, ProcessManifest).closing


def test_without_a_fault_nothing_is_lost_and_the_run_is_clean(engine):
    engine.trace.writer.start()
    engine.serve(60)
    counts = engine.end()
    assert (counts.lost_rows, counts.lost_chunks, counts.writer_error) == (0, 0, "")
    assert sum(counts.rows.values()) == engine.trace.recorder.seq == engine.trace.rows_on_disk()
    assert closing(engine) == counts
    summary = reconcile_run(engine.run)
    assert (summary.verdict, serious(summary)) == ("clean", [])


def test_a_full_disk(engine):
    engine.trace.writer.start()
    with largest_file(100_000):
        for _ in range(1000):
            engine.serve(5)
            engine.trace.settle()
            if engine.trace.failures:
                break
        engine.serve(50)
        counts = engine.end()
    assert len(engine.trace.failures) == 1
    assert "OSError" in counts.writer_error
    assert "File too large" in counts.writer_error
    assert closing(engine) == counts
    summary = check_what_is_left(engine, counts)
    assert summary.dropped == counts.lost_rows
    assert summary.steps > 5


def test_a_disk_that_has_no_room_even_for_the_closing_counts(engine):
    engine.trace.writer.start()
    engine.serve(20)
    engine.trace.settle()
    with largest_file(0):
        engine.serve(20)
        with pytest.raises(OSError, match="File too large"):
            engine.end()
    assert closing(engine) is None
    assert sorted(path.suffix for path in engine.trace.folder.iterdir() if path.name.startswith(".")) == []
    check_what_is_left(engine, engine.trace.counts())


def test_a_trace_folder_that_is_deleted(engine):
    engine.trace.writer.start()
    engine.serve(20)
    engine.trace.settle()
    shutil.rmtree(engine.run)
    engine.serve(20)
    with pytest.raises(FileNotFoundError):
        engine.end()
    (failure,) = engine.trace.failures
    assert failure.startswith("FileNotFoundError: ")
    assert ".arrows" in failure
    assert "\n" not in failure
    assert engine.trace.counts().lost_rows == engine.trace.recorder.seq, "rows in deleted streams are lost, too"


def test_a_trace_folder_that_is_deleted_when_all_is_written(engine):
    engine.trace.writer.start()
    engine.serve(20)
    engine.trace.recorder.hand_over(time.monotonic_ns())
    engine.trace.settle()
    shutil.rmtree(engine.run)
    with pytest.raises(FileNotFoundError):
        engine.trace.writer.close(lambda: write_manifest(engine.trace.folder / PROCESS_FILE, engine.manifest))
    assert engine.trace.counts().lost_rows == engine.trace.recorder.seq


def test_a_disk_that_hangs_for_a_while(engine, monkeypatch):
    monkeypatch.setattr(recorder_module, "QUEUE_BYTES", 20_000)
    gate = Gate(engine.trace.writer, monkeypatch)
    engine.trace.writer.start()
    engine.serve(20, engine.trace.settle)
    gate.shut()
    for _ in range(1000):
        engine.serve(5)
        if engine.trace.told_behind:
            break
    engine.serve(20)
    gate.open()
    engine.trace.settle()
    engine.serve(40, engine.trace.settle)
    counts = engine.end()
    assert counts.writer_error == ""
    assert len(engine.trace.told_behind) == 1
    summary = check_what_is_left(engine, counts)
    assert len(summary.gaps) == 1
    assert all(estimate.unknown_requests > 0 for estimate in summary.estimates)


def test_a_disk_that_hangs_for_good_holds_nothing_up(engine, monkeypatch):
    monkeypatch.setattr(recorder_module, "QUEUE_BYTES", 20_000)
    monkeypatch.setattr(writer_module, "STALL_SECONDS", 0.3)
    gate = Gate(engine.trace.writer, monkeypatch)
    engine.trace.writer.start()
    engine.serve(20, engine.trace.settle)
    gate.shut()
    waiting = []
    engine.serve(400, lambda: waiting.append(sum(chunk.size_bytes for chunk in engine.trace.queue._chunks)))
    assert gate.waiting.is_set()
    assert max(waiting) < 20_000 + 20_000
    with pytest.raises(TimeoutError, match="did not take the rest"):
        engine.end()
    counts = engine.trace.counts()
    assert counts.writer_error
    check_what_is_left(engine, counts)
    gate.open()
    wait_until(lambda: closing(engine) is not None, "the end of the writer")
    summary = reconcile_run(engine.run)
    assert (summary.verdict, serious(summary)) == ("incomplete", [])


def test_the_end_waits_for_a_disk_that_is_only_slow(engine, monkeypatch):
    monkeypatch.setattr(writer_module, "STALL_SECONDS", 2.0)
    write = engine.trace.writer._write_batch
    monkeypatch.setattr(engine.trace.writer, "_write_batch", lambda *a: (time.sleep(0.02), write(*a)))
    engine.serve(20)
    engine.trace.writer.start()
    began = time.monotonic()
    counts = engine.end()
    assert time.monotonic() - began > 2.0, "the end did not come while the writer still worked"
    assert (counts.lost_rows, counts.writer_error) == (0, "")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, MemoryError, RuntimeError, GeneratorExit])
def test_a_writer_thread_that_is_killed(engine, monkeypatch, kind):
    to_batch, calls = writer_module.to_batch, []

    def killing(*arguments):
        calls.append(1)
        if len(calls) == 30:
            raise kind("planted")
        return to_batch(*arguments)

    monkeypatch.setattr(writer_module, "to_batch", killing)
    engine.trace.writer.start()
    engine.serve(40)
    engine.trace.settle()
    engine.serve(40)
    counts = engine.end()
    assert engine.trace.failures == [f"{kind.__name__}: planted"] == [counts.writer_error]
    assert closing(engine) == counts
    assert len(engine.trace.queue) == 0
    check_what_is_left(engine, counts)


def test_a_writer_thread_that_is_killed_from_outside(engine):
    engine.trace.writer.start()
    engine.serve(20)
    engine.trace.settle()
    raised = ctypes.pythonapi.PyThreadState_SetAsyncExc
    assert raised(ctypes.c_ulong(engine.trace.writer._thread.ident), ctypes.py_object(SystemExit)) == 1
    wait_until(lambda: engine.trace.failures, "the failure")
    engine.serve(20)
    counts = engine.end()
    assert engine.trace.failures == ["SystemExit:"]
    # It may come between a write and its being counted.
    check_what_is_left(engine, counts, most_uncounted=20)


def test_a_full_queue_again_and_again(engine, monkeypatch):
    monkeypatch.setattr(recorder_module, "QUEUE_BYTES", 20_000)
    gate = Gate(engine.trace.writer, monkeypatch)
    engine.trace.writer.start()
    for losses in range(3):
        engine.serve(10, engine.trace.settle)
        assert len(engine.trace.told_behind) == losses
        gate.shut()
        for _ in range(1000):
            engine.serve(3)
            if len(engine.trace.told_behind) > losses:
                break
        gate.open()
        engine.trace.settle()
    counts = engine.end()
    assert counts.lost_chunks >= 3
    summary = check_what_is_left(engine, counts)
    assert len(summary.gaps) == 3


def test_the_disk_limit_is_kept_and_the_rest_is_checked(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(recorder_module, "CHUNK_NS", 1 << 60)
    monkeypatch.setattr(recorder_module, "CHUNK_BYTES", 5_000)
    limit = 100_000
    engine = RecordedEngine(tmp_path / "run", max_disk_bytes=limit)
    engine.trace.writer.start()
    most = 0
    for _ in range(60):
        engine.serve(10, engine.trace.settle)
        most = max(most, sum(path.stat().st_size for path in engine.trace.folder.glob("*.arrows")))
    counts = engine.end()
    on_disk = sum(path.stat().st_size for path in engine.trace.folder.glob("*.arrows"))
    assert on_disk <= limit
    assert most <= limit
    assert counts.segments > 4
    assert counts.lost_rows == 0
    assert 0 < counts.deleted_rows == sum(counts.rows.values()) - engine.trace.rows_on_disk()
    assert [record.message.split(";")[0] for record in caplog.records] == [
        "vstate: the trace has reached its disk limit of 100000 bytes"
    ]
    summary = reconcile_run(engine.run)
    assert (summary.verdict, serious(summary)) == ("incomplete", [])
    assert summary.steps > 5


def test_a_disk_limit_that_is_passed_before_the_next_snapshot_is_kept(tmp_path, monkeypatch):
    """Chunks that wait behind a slow writer may fill more than the limit before a snapshot can open a segment."""
    monkeypatch.setattr(recorder_module, "CHUNK_NS", 1 << 60)
    monkeypatch.setattr(recorder_module, "CHUNK_BYTES", 5_000)
    limit = 60_000
    engine = RecordedEngine(tmp_path / "run", max_disk_bytes=limit)
    engine.serve(600)
    engine.trace.writer.start()
    engine.trace.settle()
    engine.serve(30)
    counts = engine.end()
    assert sum(path.stat().st_size for path in engine.trace.folder.glob("*.arrows")) <= limit
    assert counts.deleted_rows > 0
    assert counts.writer_error == ""
    summary = reconcile_run(engine.run)
    assert (summary.verdict, serious(summary)) == ("incomplete", [])


def test_a_disk_limit_without_room_for_snapshots_ends_the_trace(tmp_path):
    engine = RecordedEngine(tmp_path / "run", max_disk_bytes=5_000)
    engine.trace.writer.start()
    engine.serve(30)
    engine.trace.settle()
    engine.serve(30)
    counts = engine.end()
    (failure,) = engine.trace.failures
    assert "more than half of the disk limit of 5000; raise it" in failure
    check_what_is_left(engine, counts)


IDS = ("x" * 10_000, "two\nlines", "\x1b[31mred\r\x00", "half \ud800 a pair", "ünïcödé " * 1000)


def test_long_and_strange_ids_arrive(tmp_path):
    trace = RecordedTrace(tmp_path)
    trace.writer.start()
    trace.boundary()
    for request_id in IDS:
        trace.recorder.new_request(f"{request_id}-1", external=request_id)
        trace.step()
    counts = trace.finish()
    assert counts.lost_rows == 0
    values = {row["value"] for row in trace.rows("names")}
    assert values >= {IDS[0], IDS[1], IDS[2], IDS[4], "half \\ud800 a pair", f"{IDS[0]}-1"}
    assert json.loads(json.dumps(sorted(values)))


def test_long_ids_fill_the_queue_by_their_size(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder_module, "QUEUE_BYTES", 1_000_000)
    trace = RecordedTrace(tmp_path)
    trace.boundary()
    for number in range(300):
        trace.recorder.new_request(f"{number:010000}")
        trace.step()
        trace.recorder.requests.clear()
    assert trace.told_behind
    waiting = sum(len(value) for chunk in trace.queue._chunks for *_, value in chunk.names)
    assert 800_000 < waiting < 1_020_000
    taken = []
    while (chunk := trace.queue.take()) is not None:
        taken.append(chunk)
    assert trace.queue._put_bytes == trace.queue._taken_bytes


def test_requests_that_come_and_go_without_a_step_are_handed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder_module, "CHUNK_NS", 1 << 60)
    trace = RecordedTrace(tmp_path)
    trace.boundary()
    for number in range(10_000):
        trace.recorder.new_request(f"r{number}")
        trace.recorder.between_boundaries(0)
        trace.recorder.requests.clear()
        assert trace.recorder._names_bytes <= recorder_module.CHUNK_BYTES
    assert len(trace.queue) > 2


def test_an_event_that_cannot_be_packed_leaves_no_half_a_row(tmp_path):
    trace = RecordedTrace(tmp_path)
    trace.writer.start()
    trace.boundary()
    record = trace.recorder
    for bad in ([1, 1 << 40], [None], [1, "2"]):
        with pytest.raises((TypeError, OverflowError, struct.error)):
            record.blocks(BlockKind.ALLOC, 0, 0, 1, bad)
    with pytest.raises(struct.error):
        record.blocks(BlockKind.ALLOC, 0, 0, 1 << 70, [1])
    with pytest.raises(struct.error):
        record.cache_insert(0, 1, 5, bytes(36), 1 << 70, 0)
    with pytest.raises(OverflowError):
        record.row("step", 7, 0, 1, -1, 3, 2, 0, 64, -1, 2, 2, values=[1 << 40, 20, 30, 40])
    record.blocks(BlockKind.ALLOC, 0, 0, 1, [7, 8])
    counts = trace.finish()
    assert counts.writer_error == ""
    assert [row["blocks"] for row in trace.rows("block")] == [[7, 8]]
    assert sum(counts.rows.values()) < record.seq
