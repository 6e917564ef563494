"""What workers and front ends write: rows in order, losses counted, faults kept from vLLM."""

from types import SimpleNamespace

import pytest

from vstate.inventory.outside import outside_pools
from vstate.schemas.manifests import PROCESS_FILE, StateProcessManifest, read_manifest
from vstate.schemas.tables.memory import MemoryKind, MemoryPhase
from vstate.schemas.vocabulary import Eviction, Owner, StateClass, Unit
from vstate.tracer import media_cache_hooks, memory_log, worker_hooks
from vstate.tracer.media_cache_hooks import measured_from_the_start
from vstate.tracer.memory_log import MemoryLog
from vstate.tracer.outcome import stream_batches
from vstate.tracer.settings import TraceSettings
from vstate.tracer.state_session import StateSession
from vstate.tracer.worker_hooks import WorkerHooks, device_figures

SECRET = bytes(16)


@pytest.fixture
def settings(tmp_path):
    return TraceSettings(run=tmp_path / "run", secret=SECRET, max_disk_bytes=0)


def weights():
    return outside_pools(
        "target/weights",
        StateClass.WEIGHTS,
        Owner.TARGET,
        unit=Unit.ENGINE,
        unit_bytes=7,
        engine_bytes=7,
        eviction=Eviction.NEVER,
    )


def rows_in(folder):
    streams = sorted(folder.glob("memory-*.arrows"))
    return [row for path in streams for batch in stream_batches(path) for row in batch.to_pylist()]


@pytest.fixture(autouse=True)
def no_vllm(monkeypatch):
    monkeypatch.setattr("vstate.tracer.state_session.vllm_version", lambda: "0.32.0")


def test_rows_and_closing_counts_are_there_after_the_end(settings):
    session = StateSession(settings, "worker", (1, 0, 2), [weights()])
    session.log.put(MemoryKind.PLANNED, MemoryPhase.ALLOCATED, session.index("target/weights"), 7)
    session.log.put(MemoryKind.MEASURED, MemoryPhase.ALLOCATED, session.index("target/weights"), 9)
    session.close()
    rows = rows_in(session.folder)
    assert [(row["seq"], row["kind"], row["component"], row["component_bytes"]) for row in rows] == [
        (1, MemoryKind.PLANNED, 0, 7),
        (2, MemoryKind.MEASURED, 0, 9),
    ]
    manifest = read_manifest(session.folder / PROCESS_FILE, StateProcessManifest)
    assert (manifest.role, manifest.data_parallel_rank, manifest.tensor_parallel_rank) == ("worker", 1, 2)
    assert manifest.components == (weights(),)
    assert manifest.closing is not None
    assert manifest.closing.rows["memory"] == 2
    assert manifest.closing.lost_rows == 0


def test_what_the_writer_does_not_take_is_dropped_and_counted(monkeypatch):
    monkeypatch.setattr(memory_log, "ROW_LIMIT", 3)
    log = MemoryLog()
    for _ in range(5):
        log.put(MemoryKind.ITEM, MemoryPhase.SERVING, 0, 1)
    assert log.lost_rows == 2
    chunk = log.take()
    assert chunk is not None
    assert chunk.rows == 3
    assert log.take() is None


class Worker:
    """A worker with a model runner; counts the calls that reach it."""

    def __init__(self):
        self.model_runner = SimpleNamespace(encoder_cache={})
        self.device = "cpu"
        self.calls = []

    def load_model(self, *, load_dummy_weights=False):
        self.calls.append("load_model")

    def initialize_from_config(self, kv_cache_config):
        self.calls.append("initialize_from_config")

    def compile_or_warm_up_model(self):
        self.calls.append("compile_or_warm_up_model")
        return 1.5

    def execute_model(self, scheduler_output):
        self.calls.append("execute_model")
        return scheduler_output

    def shutdown(self):
        self.calls.append("shutdown")


def test_a_fault_while_measuring_is_told_once_and_the_worker_goes_on(settings, monkeypatch, caplog):
    def fails(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr(worker_hooks, "worker_components", fails)
    worker = Worker()
    worker.vllm_config = None
    WorkerHooks(worker, settings).install()
    worker.load_model()
    worker.initialize_from_config(object())
    assert worker.compile_or_warm_up_model() == 1.5
    output = SimpleNamespace(scheduled_encoder_inputs={"a": [0]}, free_encoder_mm_hashes=[])
    assert worker.execute_model(output) is output
    worker.shutdown()
    assert worker.calls == [
        "load_model",
        "initialize_from_config",
        "compile_or_warm_up_model",
        "execute_model",
        "shutdown",
    ]
    assert sum("planted" in record.message for record in caplog.records) == 1
    assert not settings.run.exists()


def test_a_worker_without_a_model_runner_is_left_alone(settings):
    worker = SimpleNamespace(load_model=len)
    WorkerHooks(worker, settings).install()
    assert worker.load_model is len


def test_device_figures_are_those_of_torchs_allocator(monkeypatch):
    torch = pytest.importorskip("torch")
    stats = {"allocated_bytes.all.current": 10, "reserved_bytes.all.current": 20, "allocated_bytes.all.peak": 15}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: stats)
    assert device_figures(torch.device("cuda", 0)) == [
        (MemoryKind.DEVICE_ALLOCATED, 10),
        (MemoryKind.DEVICE_RESERVED, 20),
        (MemoryKind.DEVICE_PEAK, 15),
    ]
    assert device_figures(torch.device("cpu")) == []


class Entries(dict):
    maxsize = 100

    @property
    def currsize(self):
        return sum(self.values())


def test_processed_media_are_followed_through_evictions(settings, monkeypatch):
    torch = pytest.importorskip("torch")
    sessions = []

    def opened(*arguments):
        sessions.append(StateSession(*arguments))
        return sessions[-1]

    monkeypatch.setattr(media_cache_hooks, "StateSession", opened)

    class Cache:
        def __init__(self):
            self._cache = Entries()

        def get_and_update_item(self, mm_item, mm_hash):
            if mm_hash not in self._cache:
                if self._cache.currsize + mm_item.nbytes > Entries.maxsize:
                    self._cache.clear()
                self._cache[mm_hash] = mm_item.nbytes + 1
            return mm_item

    Cache.__init__ = measured_from_the_start(settings, "frontend")(Cache.__init__)
    cache = Cache()
    assert not settings.run.exists(), "a cache that stays empty has a trace"
    for name, size in (("a", 40), ("b", 50), ("a", 40), ("c", 30)):
        cache.get_and_update_item(torch.zeros(size, dtype=torch.int8), name)
    (session,) = sessions
    session.close()
    rows = rows_in(session.folder)
    measured = [row["component_bytes"] for row in rows if row["kind"] == MemoryKind.MEASURED]
    booked = [row["component_bytes"] for row in rows if row["kind"] == MemoryKind.BOOKED]
    assert measured == [40, 90, 30]
    assert booked == [41, 92, 31]
