"""Many short requests, one after the other: nothing that is kept of them may grow with their number."""

import gc
import os
import time
import tracemalloc

import pytest

from support.recorded import RecordedTrace
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.request import RequestKind
from vstate.tracer import recorder as recorder_module
from vstate.tracer import writer as writer_module

pytestmark = pytest.mark.long

REQUESTS = int(os.environ.get("VSTATE_TEST_REQUESTS", "12000"))
"""How many are served; 1000000 takes some minutes."""
GROWTH_BYTES = 200_000
"""What may be kept beyond the first third: less than ten bytes for each further request."""


def serve(trace, first, count, *, settled):
    recorder = trace.recorder
    for number in range(first, first + count):
        request_id = f"{number:032x}"
        recorder.step += 1
        key = recorder.new_request(f"{request_id}-0123abcd", external=request_id).key
        recorder.row("request", recorder.step, RequestKind.ARRIVE, 1, -1, key, *(0,) * 9)
        recorder.blocks(BlockKind.ALLOC, 0, 0, key, [1, 2])
        recorder.cache_insert(0, key, 1, bytes(36), 16, 20)
        recorder.row("step", recorder.step, 0, 1, -1, 1, 0, 0, 5, -1, 1, 1, values=[10, 20])
        trace.boundary()
        reason = recorder.reason("finished_length_capped")
        recorder.row("request", recorder.step, RequestKind.FINISH, 1, -1, key, *(0,) * 8, reason)
        recorder.blocks(BlockKind.FREE, 0, 0, key, [1, 2])
        del recorder.requests[f"{request_id}-0123abcd"]
        trace.boundary(idle=True)
        if settled and number % 500 == 0:
            trace.settle()


def kept_bytes(trace, *, live):
    trace.recorder.hand_over(time.monotonic_ns())
    if live:
        trace.settle()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.parametrize("disk", ["live", "hanging", "dead"])
def test_memory_does_not_grow_with_the_number_of_requests(tmp_path, monkeypatch, disk):
    monkeypatch.setattr(recorder_module, "QUEUE_BYTES", 1_000_000)
    monkeypatch.setattr(writer_module, "POLL_SECONDS", 0.005)
    trace = RecordedTrace(tmp_path)
    if disk == "dead":
        monkeypatch.setattr(trace.writer, "_write_batch", lambda *_: 1 / 0)
    if disk != "hanging":
        trace.writer.start()
    trace.boundary()
    tracemalloc.start()
    try:
        first = REQUESTS // 3
        serve(trace, 0, first, settled=disk == "live")
        before = kept_bytes(trace, live=disk == "live")
        serve(trace, first, REQUESTS - first, settled=disk == "live")
        grown = kept_bytes(trace, live=disk == "live") - before
    finally:
        tracemalloc.stop()
    recorder = trace.recorder
    assert recorder.seq > 8 * REQUESTS
    assert grown < GROWTH_BYTES
    assert recorder.requests == {}
    assert len(recorder._names) == 0
    assert set(recorder.reasons) == {"finished_length_capped"}
    assert (recorder.lost_rows == 0) == (disk == "live")
    counts = trace.counts() if disk == "hanging" else trace.finish()
    assert sum(counts.rows.values()) + counts.lost_rows == recorder.seq
