"""Runs that were killed or that lost events: readable, incomplete, and never a false finding."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.processes import site, succeeds
from support.runs import VSTATE, forked_vstate, make_run, reconciled, vstate
from vstate.schemas.tables import TABLES
from vstate.tracer.outcome import stream_batches

TESTS = Path(__file__).parents[1]
EVERY_STEP = "import vstate.tracer.recorder as r; r.CHUNK_NS = 0\n"

STALLED = (
    EVERY_STEP
    + """
import vstate.tracer.writer as writer
r.QUEUE_BYTES, writer.POLL_SECONDS = 4000, 0.01
drop, take, dropped = r.Recorder._drop, r.ChunkQueue.take, []
def tell(self, rows, first_step):
    dropped.append(first_step)
    drop(self, rows, first_step)
r.Recorder._drop = tell
r.ChunkQueue.take = lambda self: take(self) if dropped else None
"""
)
"""A writer that takes nothing until the full queue has cost a chunk, however fast the machine is."""


def customized(tmp_path, code):
    """A folder that makes every Python process of a run execute ``code`` first."""
    return str(site(tmp_path / "customized", code))


def children(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def recorded_steps(folder):
    return sum(b.num_rows for path in folder.glob("events/*/step-*.arrows") for b in stream_batches(path))


def test_a_run_killed_with_9_is_read_to_its_last_batch(tmp_path):
    folder = tmp_path / "run"
    environment = os.environ | {"PYTHONPATH": customized(tmp_path, EVERY_STEP)}
    command = [*VSTATE, "trace", "run", "--model", "tiny/qwen3", "--out", str(folder)]
    launcher = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 120
    while recorded_steps(folder) < 30:
        assert time.monotonic() < deadline, "the run never got far enough to be killed"
        assert launcher.poll() is None, "the run ended before it was killed"
        time.sleep(0.02)
    (engine,) = children(launcher.pid)
    os.kill(engine, signal.SIGKILL)
    _, told = launcher.communicate(timeout=60)
    assert launcher.returncode == 2
    assert told.strip().splitlines()[-1].startswith("error: the engine process ended with code -9")
    assert json.loads((folder / "run.json").read_text())["outcome"] is None
    run = reconciled(folder)
    assert run.summary["verdict"] == "incomplete"
    assert [f for f in run.summary["findings"] if f["severity"] != "info"] == []
    assert run.summary["steps"] >= 15
    assert run.process.closing is None
    shown = forked_vstate("trace", "show", folder)
    assert "killed, or still going" in shown.stdout


def test_dropped_chunks_make_gaps_and_unknown_requests_but_no_finding(tmp_path):
    run = make_run(tmp_path / "run", "--model", "tiny/qwen3", PYTHONPATH=customized(tmp_path, STALLED))
    assert run.process.closing.lost_chunks > 0
    assert run.summary["dropped"] == run.process.closing.lost_rows > 0
    assert run.summary["verdict"] == "incomplete"
    assert run.summary["gaps"]
    assert [f for f in run.summary["findings"] if f["severity"] != "info"] == []
    assert any(e["unknown_requests"] > 0 for e in run.summary["estimates"])
    text = forked_vstate("reconcile", run.folder, "--fail-on", "never").stdout
    assert f"not checked: steps {run.summary['gaps'][0]}" in text


def test_a_hook_that_fails_costs_events_and_never_the_engine(tmp_path):
    """One hook raises once; the engine's answers stay what they are and the loss is told."""
    code = (
        EVERY_STEP + "import vstate.tracer.recorder as r\n"
        "original = r.Recorder.cache_insert\n"
        "def once(self, *a):\n"
        "    if self.step == 20 and not getattr(self, 'did', False):\n"
        "        self.did = True\n"
        "        raise RuntimeError('planted')\n"
        "    return original(self, *a)\n"
        "r.Recorder.cache_insert = once\n"
    )
    run = make_run(tmp_path / "run", "--model", "tiny/qwen3", PYTHONPATH=customized(tmp_path, code))
    assert run.manifest["outcome"]["finished"] > 0
    assert run.process.closing.lost_rows > 0
    assert run.summary["verdict"] == "incomplete"
    assert [f for f in run.summary["findings"] if f["severity"] != "info"] == []
    log = (run.folder / "engine.log").read_text()
    assert log.count("vstate: recording") == 1
    assert "planted" in log


def test_each_part_of_the_recording_fails_in_turn(tmp_path):
    """What vLLM does stays the same in every way, and what is left of the trace gives no finding."""
    script, answer = TESTS / "support" / "faulty_hooks.py", tmp_path / "answer.json"
    environment = os.environ | {
        "VSTATE_TRACE_RUN": str(tmp_path / "run"),
        "PYTHONPATH": str(TESTS),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "HF_HUB_OFFLINE": "1",
    }
    command = [script, "qwen3.5-vl", json.dumps({"prefix_match_unit": 128}), answer]
    succeeds(command, environment)
    told = json.loads(answer.read_text())
    _, reference, *faulty, after = told["rounds"]
    by_hand = {"_update_request_as_session", "unpin_blocks"}
    assert set(told["hooked"]) - by_hand == set(reference["calls"])
    assert len(reference["answers"]) > 30
    assert {r["target"] for r in faulty if r["raised"]} == {r["target"] for r in faulty}, "a fault never struck"
    for round_ in (*faulty, after):
        assert round_["wrong"] == [], round_["target"]
        assert round_["answers"] == reference["answers"], round_["target"]
        assert round_["calls"] == reference["calls"], round_["target"]
        assert round_["kept"] == 0, round_["target"]
    assert told["interrupted"], "an interrupt must reach the engine"
    run = reconciled(tmp_path / "run")
    assert run.illegal == []
    assert run.summary["verdict"] == "incomplete"
    assert len(run.summary["gaps"]) > 50
    assert run.process.closing.lost_rows == run.summary["dropped"] > 1000
    engine_tables = [table for table in TABLES if table != "memory"]
    assert sum(len(run.rows(table)) for table in engine_tables) == sum(run.process.closing.rows.values())


HANGING = (
    EVERY_STEP
    + """
import threading
import vstate.tracer.writer as writer
r.QUEUE_BYTES, writer.STALL_SECONDS, written = 20000, 1.0, []
write = writer.Writer._write_batch
def hang(self, table, batch):
    written.append(table)
    if len(written) == 60:
        threading.Event().wait()
    write(self, table, batch)
writer.Writer._write_batch = hang
"""
)
DELETED = (
    EVERY_STEP
    + """
import shutil
import vstate.tracer.writer as writer
written = []
write = writer.Writer._write_batch
def delete(self, table, batch):
    written.append(table)
    if len(written) == 60:
        shutil.rmtree(self._folder)
    write(self, table, batch)
writer.Writer._write_batch = delete
"""
)


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        (
            HANGING,
            ["the disk is slower than the trace;", "the trace ends without closing counts (the disk did"],
        ),
        (DELETED, ["writing the trace failed (FileNotFoundError", "the trace ends without closing counts ([Errno 2]"]),
    ],
    ids=["a disk that hangs", "a folder that is deleted"],
)
def test_an_engine_serves_on_without_its_disk(tmp_path, code, lines):
    folder = tmp_path / "run"
    environment = {"PYTHONPATH": customized(tmp_path, code)}
    made = forked_vstate("trace", "run", "--model", "tiny/qwen3", "--out", folder, **environment)
    log = (folder / "engine.log").read_text()
    told = [line.partition("vstate: ")[2] for line in log.splitlines() if "vstate: " in line]
    assert len(told) == len(lines), told
    for line, start in zip(told, lines, strict=True):
        assert line.startswith(start)
    assert re.search(r": \d+ rows are written, [1-9]\d* are lost$", told[-1])
    assert "Traceback" not in log
    if code is DELETED:
        return
    assert made.returncode == 0, made.stderr
    run = reconciled(folder)
    assert run.process.closing is None
    assert (run.illegal, run.summary["verdict"]) == ([], "incomplete")


FORK = """
import sys, importlib.abc, importlib.machinery
class Fork(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "vllm.v1.core.block_pool":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        def changed(module):
            execute(module)
            module.BlockPool.touch_all = module.BlockPool.touch
            del module.BlockPool.touch
        spec.loader.exec_module = changed
        return spec
sys.meta_path.insert(0, Fork())
"""


def test_a_vllm_that_does_not_fit_is_refused_in_one_line(tmp_path):
    path = customized(tmp_path, FORK)
    result = vstate("trace", "run", "--model", "tiny/qwen3", "--out", tmp_path / "run", PYTHONPATH=path)
    assert result.returncode == 2
    (line,) = [line for line in result.stderr.splitlines() if line.strip()]
    assert line.startswith("error: this vLLM is not supported, it lacks block_pool.BlockPool.touch")
    assert not (tmp_path / "run").exists()
    doctor = vstate("doctor", PYTHONPATH=path)
    assert doctor.returncode == 1
    assert "MISS block_pool.BlockPool.touch" in doctor.stdout


def test_doctor_says_that_this_vllm_fits():
    result = forked_vstate("doctor")
    assert result.returncode == 0, result.stdout
    assert "MISS" not in result.stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--set", "no_such_argument=1"), "no_such_argument"),
        (("--set", "max_model_len=256"), "the model takes 256"),
    ],
)
def test_an_engine_that_cannot_start_leaves_nothing_behind(tmp_path, options, told):
    result = forked_vstate("trace", "run", "--model", "tiny/qwen3", "--out", tmp_path / "run", *options)
    assert result.returncode == 2
    (line,) = [line for line in result.stderr.splitlines() if line.strip()]
    assert line.startswith("error: ")
    assert told in line
    assert not (tmp_path / "run").exists()
