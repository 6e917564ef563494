"""From the recorder's buffers to Arrow streams, and every way in which rows can be lost."""

import os
import stat

import pyarrow as pa
import pytest

from support.recorded import RecordedTrace, wait_until
from vstate.schemas.tables import TABLES
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.names import NameKind
from vstate.schemas.tables.snapshot import SnapshotKind
from vstate.tracer import recorder as recorder_module
from vstate.tracer import writer as writer_module
from vstate.tracer.outcome import stream_batches

pytestmark = pytest.mark.long

RAW = bytes(32) + (5).to_bytes(4, "big")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(writer_module, "POLL_SECONDS", 0.005)
    monkeypatch.setattr(recorder_module, "CHUNK_NS", 0)


@pytest.fixture
def trace(tmp_path):
    return RecordedTrace(tmp_path)


def test_every_row_arrives_in_order_with_its_lists_and_hashes(trace):
    trace.writer.start()
    trace.boundary()
    trace.recorder.step = 7
    trace.recorder.blocks(BlockKind.ALLOC, 0, 2, 11, [4, 5, 6])
    trace.recorder.cache_insert(0, 11, 5, RAW, 128, 200)
    trace.recorder.blocks(BlockKind.RESET, 0, -1, -1, [])
    trace.recorder.row("step", 7, 0, 123456789012345, -1, 3, 2, 0, 64, -1, 2, 2, values=[10, 20, 30, 40])
    trace.finish()
    alloc, insert, reset = trace.rows("block")
    assert (alloc["step"], alloc["group"], alloc["request_key"], alloc["blocks"]) == (7, 2, 11, [4, 5, 6])
    assert (insert["group"], insert["position_tokens"], insert["verified_tokens"]) == (5, 128, 200)
    assert insert["block_hash"] != 0
    assert alloc["block_hash"] == 0
    assert reset["blocks"] == []
    (step,) = trace.rows("step")
    assert step["free_blocks"] == [10, 20]
    assert step["cached_hashes"] == [30, 40]
    assert step["time_ns"] == 123456789012345
    sequence = [row["seq"] for table in TABLES for row in trace.rows(table)]
    assert len(set(sequence)) == len(sequence)


def test_streams_have_the_declared_schema_and_are_private(trace):
    trace.writer.start()
    trace.step()
    trace.finish()
    for path in trace.folder.glob("*.arrows"):
        with pa.OSFile(str(path)) as file:
            schema = pa.ipc.open_stream(file).schema
        assert schema.equals(TABLES[path.name.partition("-")[0]].schema(), check_metadata=True)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_first_segment_starts_with_a_snapshot(trace):
    trace.writer.start()
    trace.boundary()
    trace.step()
    trace.finish()
    begin, end = trace.rows("snapshot")
    assert begin["seq"] < end["seq"] < trace.rows("block")[0]["seq"]
    assert begin["lost_from_step"] == -1


def test_a_full_queue_drops_counts_and_starts_again_from_a_snapshot(trace, monkeypatch):
    monkeypatch.setattr(recorder_module, "QUEUE_BYTES", 5000)
    trace.boundary()
    for _ in range(50):
        trace.step()
    lost_from = trace.recorder.lost_from_step
    assert lost_from > 0
    trace.recorder.reason("named while rows were lost")
    trace.writer.start()
    trace.settle()
    trace.step()
    trace.step()
    counts = trace.finish()
    assert counts.lost_chunks > 0
    assert counts.lost_rows > 0
    begins = [row for row in trace.rows("snapshot") if row["kind"] == SnapshotKind.BEGIN]
    assert [row["lost_from_step"] for row in begins] == [-1, lost_from]
    steps = [row["step"] for row in trace.rows("block")]
    # A chunk begins after a step boundary, so rows of the gap's first step up to there survive.
    assert steps == [*range(1, lost_from + 1), *range(begins[1]["step"] + 1, steps[-1] + 1)]
    assert begins[1]["step"] > lost_from
    assert counts.rows["block"] == len(steps)
    assert "named while rows were lost" in [row["value"] for row in trace.rows("names")]


def test_an_event_that_could_not_be_recorded_makes_a_gap_too(trace):
    trace.writer.start()
    trace.step()
    trace.recorder.lose()
    trace.step()
    trace.step()
    counts = trace.finish()
    assert counts.lost_rows >= 1
    begins = [row["lost_from_step"] for row in trace.rows("snapshot") if row["kind"] == SnapshotKind.BEGIN]
    assert len(begins) == 2
    assert begins[1] >= 0


def test_segments_rotate_and_each_stands_alone(trace, monkeypatch):
    monkeypatch.setattr(writer_module, "SEGMENT_BYTES", 2000)
    trace.writer.start()
    trace.boundary()
    entry = trace.recorder.new_request("request-a", external="a")
    for _ in range(200):
        trace.step()
        trace.settle()
    counts = trace.finish()
    assert counts.segments > 2
    for segment in range(1, counts.segments + 1):
        for table in ("snapshot", "names"):
            path = trace.folder / f"{table}-{segment:04d}.arrows"
            assert sum(batch.num_rows for batch in stream_batches(path)) > 0, f"{path.name} is empty"
        names = [r for b in stream_batches(trace.folder / f"names-{segment:04d}.arrows") for r in b.to_pylist()]
        assert {(r["kind"], r["key"], r["value"]) for r in names} >= {
            (NameKind.REQUEST, entry.key, "request-a"),
            (NameKind.EXTERNAL, entry.key, "a"),
        }
    steps = [row["step"] for row in trace.rows("block")]
    assert steps == list(range(1, 201)), "rotation lost or doubled rows"


def test_the_disk_limit_removes_the_oldest_segments_first(tmp_path):
    trace = RecordedTrace(tmp_path, max_disk_bytes=40_000)
    trace.writer.start()
    for _ in range(300):
        trace.step(rows=20)
        trace.settle()
    counts = trace.finish()
    kept = sorted(int(path.stem.rpartition("-")[2]) for path in tmp_path.glob("block-*.arrows"))
    assert kept[0] > 1
    assert kept == list(range(kept[0], kept[-1] + 1))
    assert counts.deleted_rows + trace.rows_on_disk() == sum(counts.rows.values())
    assert sum(path.stat().st_size for path in tmp_path.glob("*.arrows")) <= 40_000


def test_a_stream_that_was_cut_reads_to_its_last_whole_batch(trace):
    trace.writer.start()
    for _ in range(10):
        trace.step()
        trace.settle()
    trace.finish()
    path = next(trace.folder.glob("block-*.arrows"))
    whole = [row["step"] for row in trace.rows("block")]
    os.truncate(path, path.stat().st_size - 40)
    cut = [row["step"] for row in trace.rows("block")]
    assert cut == whole[: len(cut)]
    assert 0 < len(cut) <= len(whole)
    os.truncate(path, path.stat().st_size // 2)
    half = [row["step"] for row in trace.rows("block")]
    assert half == whole[: len(half)]
    assert len(half) < len(cut)


def test_a_writer_that_fails_is_told_once_and_recording_stays_bounded(trace, monkeypatch):
    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trace.writer, "_write_batch", no_space)
    trace.writer.start()
    trace.step()
    wait_until(lambda: trace.failures, "the failure")
    for _ in range(1000):
        trace.step(rows=10)
        trace.recorder.new_request(f"r{trace.recorder.step}")
        trace.recorder.requests.clear()
    assert len(trace.failures) == 1
    assert "No space left" in trace.failures[0]
    assert len(trace.queue) < 10
    assert len(trace.recorder._names) < 100, "names pile up behind a dead writer"
    assert trace.finish().lost_rows >= 9000


def test_a_chunk_goes_by_size_even_when_time_stands_still(trace, monkeypatch):
    monkeypatch.setattr(recorder_module, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(recorder_module, "CHUNK_NS", 1 << 60)
    trace.boundary()
    before = len(trace.queue)
    for _ in range(50):
        trace.recorder.blocks(BlockKind.FREE, 0, 0, 1, [1])
    trace.recorder.boundary(0, trace.snapshot)
    assert len(trace.queue) == before + 1


def test_light_traffic_loses_nothing_and_does_not_make_a_chunk_a_request(trace, monkeypatch):
    """Lone requests one after the other, as fast as they come, with a writer at its real pace."""
    monkeypatch.setattr(recorder_module, "CHUNK_NS", 500_000_000)
    monkeypatch.setattr(writer_module, "POLL_SECONDS", 0.25)
    trace.writer.start()
    trace.boundary()
    for number in range(3000):
        trace.recorder.new_request(f"r{number}")
        trace.recorder.step += 1
        trace.recorder.blocks(BlockKind.ALLOC, 0, 0, number, [1])
        trace.boundary(idle=True)
        trace.recorder.blocks(BlockKind.FREE, 0, 0, number, [1])
        trace.boundary(idle=True)
        del trace.recorder.requests[f"r{number}"]
    counts = trace.finish()
    assert (counts.lost_chunks, counts.lost_rows) == (0, 0)
    assert counts.rows["block"] == 6000
    batches = sum(1 for path in trace.folder.glob("block-*.arrows") for _ in stream_batches(path))
    assert batches < 50


def test_a_snapshot_that_fills_a_segment_does_not_ask_for_the_next_one(trace, monkeypatch):
    monkeypatch.setattr(writer_module, "SEGMENT_BYTES", 2000)
    plain = trace.snapshot
    trace.snapshot = lambda: (plain(), [trace.recorder.snapshot_row(SnapshotKind.HOLDER) for _ in range(2000)])
    trace.writer.start()
    for _ in range(100):
        trace.boundary()
        trace.settle()
    assert trace.finish().segments == 1


def test_names_do_not_pile_up_behind_a_writer_that_hangs(trace, monkeypatch):
    monkeypatch.setattr(recorder_module, "QUEUE_BYTES", 1000)
    trace.boundary()
    for number in range(2000):
        trace.recorder.new_request(f"r{number}")
        trace.step()
        del trace.recorder.requests[f"r{number}"]
    assert len(trace.recorder._names) <= 2


def test_two_requests_with_one_internal_id_get_two_keys(trace):
    first = trace.recorder.new_request("x")
    del trace.recorder.requests["x"]
    assert trace.recorder.new_request("x").key != first.key
