"""Other ways to run an engine: steps in flight, a real server under a real client, restarts."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import openai
import pytest

from support.runs import VSTATE, reconciled
from vstate.schemas.tables.request import RequestKind
from vstate.tracer.models.tiny import build, tiny_model
from vstate.tracer.models.tokenizer import write_tokenizer

TESTS = Path(__file__).parents[1]
IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}


def succeeds(command, environment):
    """Run a process that must end well, and show what it said where it does not."""
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-3000:]}{done.stderr[-6000:]}"


@pytest.mark.parametrize("model", ["qwen3", "gemma3"])
def test_replay_holds_with_two_steps_in_flight(tmp_path, every_boundary, model):
    """AsyncScheduler with a batch queue of two, on a stand-in worker: the CPU runner cannot do it."""
    path = f"{TESTS}{os.pathsep}{every_boundary['PYTHONPATH']}"
    environment = os.environ | IN_PROCESS | {"VSTATE_TRACE_RUN": str(tmp_path / "run"), "PYTHONPATH": path}
    command = [sys.executable, TESTS / "support" / "async_engine.py", model]
    succeeds(command, environment)
    run = reconciled(tmp_path / "run")
    assert run.process.scheduler_class.endswith("AsyncScheduler")
    assert run.process.settings.max_in_flight_tokens == 2 * run.process.settings.max_batched_tokens
    assert run.illegal == []
    assert run.summary["verdict"] == "clean"
    assert all(e["undercount_requests"] == 0 for e in run.estimates("vstate", "life"))
    kinds = [row["kind"] for row in sorted(run.rows("step"), key=lambda row: row["seq"])]
    assert any(a == b == 0 for a, b in zip(kinds, kinds[1:], strict=False)), "no two steps were in flight"


def test_a_second_engine_of_a_run_is_an_engine_of_its_own(tmp_path):
    environment = os.environ | IN_PROCESS | {"VSTATE_TRACE_RUN": str(tmp_path / "run"), "PYTHONPATH": str(TESTS)}
    for _ in range(2):
        command = [sys.executable, TESTS / "support" / "async_engine.py", "qwen3"]
        succeeds(command, environment)
    assert len(list((tmp_path / "run" / "events").iterdir())) == 2
    run = reconciled(tmp_path / "run")
    assert run.summary["verdict"] == "clean"
    assert run.summary["requests"] == 50


@pytest.fixture
def model(tmp_path):
    """A tiny model with a tokenizer, as a server wants it."""
    folder = tmp_path / "model"
    folder.mkdir()
    build(tiny_model("qwen3"), folder)
    if not (folder / "tokenizer.json").exists():
        write_tokenizer(folder, 1024, {}, {})
    return folder


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_until_up(process, port):
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended before it was up"
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
            return
        except OSError:
            time.sleep(0.5)
    raise AssertionError("the server never came up")


def test_a_server_under_a_real_client_ends_with_a_complete_run(tmp_path, model):
    port, folder = free_port(), tmp_path / "run"
    options = ["--load-format", "dummy", "--enforce-eager", "--dtype", "bfloat16", "--max-model-len", "1024"]
    options += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny"]
    command = [*VSTATE, "trace", "serve", "--out", str(folder), "--", str(model), *options]
    environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            wait_until_up(server, port)
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
            prompt = list(range(20, 320))
            for _ in range(2):
                answer = client.completions.create(model="tiny", prompt=prompt, max_tokens=5, temperature=0)
                assert answer.usage.completion_tokens > 0
            stream = client.completions.create(model="tiny", prompt=prompt[:50], max_tokens=4, stream=True)
            assert sum(1 for _ in stream) > 0
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=60) == 0
        finally:
            server.kill()
    run = reconciled(folder)
    assert run.manifest["engine"] == "serve"
    assert run.manifest["outcome"]["requests"] == 3
    assert run.manifest["outcome"]["prefix_hits"] == 1
    assert run.summary["verdict"] == "clean"
    assert run.illegal == []
    assert sum(row["kind"] == RequestKind.FINISH for row in run.rows("request")) == 3
    external = [row["value"] for row in run.rows("names") if row["kind"] == 1]
    assert all(value.startswith("cmpl-") for value in external)
