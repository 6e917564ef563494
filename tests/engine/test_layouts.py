"""Engines over several processes: tensor parallel, and a data-parallel server under a real client.

The server is started as a user starts one, with one variable set, and is switched off and on.
"""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from support.processes import free_port, model_to_serve, serve_options, wait_until_up
from support.runs import forked_vstate, make_run, reconciled
from vstate.schemas.manifests import PROCESS_FILE, ProcessManifest, read_manifest
from vstate.schemas.tables.request import RequestKind

TWO_CORES = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
"""A core for each rank; vLLM asserts a NUMA node for each otherwise."""


def engines_of(run):
    """Manifests of the engines of a run, in the order in which they began."""
    found = [read_manifest(path, ProcessManifest) for path in run.glob(f"events/engine-*/{PROCESS_FILE}")]
    return sorted(found, key=lambda manifest: manifest.clock.wall_ns)


def test_tensor_parallel_has_one_scheduler_and_one_trace(tmp_path, every_boundary):
    options = ("--engine-core", "own-process", "--set", "tensor_parallel_size=2")
    run = make_run(tmp_path / "run", "--model", "tiny/qwen3", *options, **TWO_CORES, **every_boundary)
    assert run.illegal == []
    assert run.summary["verdict"] == "clean"
    assert run.manifest["outcome"]["preemptions"] > 0
    (engine,) = engines_of(run.folder)
    assert engine.settings.model == "tiny/qwen3"
    assert (engine.data_parallel_rank, engine.tensor_parallel_rank) == (0, 0)
    assert all(e["undercount_requests"] == 0 for e in run.estimates("vstate", "life"))


class Client:
    """A real client that keeps both ranks busy."""

    def __init__(self, port):
        self._client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", timeout=120)

    def ask(self, start):
        prompt = list(range(start, start + 300))
        answer = self._client.completions.create(
            model="tiny", prompt=prompt, max_tokens=20, temperature=0, extra_body={"ignore_eos": True}
        )
        return answer.usage.completion_tokens

    def ask_all(self, count):
        with ThreadPoolExecutor(count) as pool:
            assert list(pool.map(self.ask, range(20, 20 + count))) == [20] * count


@pytest.fixture
def server(tmp_path, every_boundary):
    """A server with two data-parallel ranks, started with one variable, and its client.

    A model without experts: vLLM has no way to exchange tokens between ranks on a CPU.
    """
    port, model = free_port(), model_to_serve(tmp_path / "model", "qwen3")
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), *serve_options(port)]
    command += ["--data-parallel-size", "2", "--shutdown-timeout", "15"]
    traced = {"VSTATE_TRACE_DIR": str(tmp_path / "traces"), "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    traced |= TWO_CORES | every_boundary
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=os.environ | traced, stdout=log, stderr=log)
        try:
            wait_until_up(process, port)
            yield process, Client(port)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=60)


def test_a_data_parallel_server_is_traced_rank_by_rank_and_switched_while_it_serves(tmp_path, server):
    process, client = server
    client.ask_all(8)
    (run,) = (tmp_path / "traces").iterdir()
    off = forked_vstate("trace", "off", tmp_path / "traces", "--wait", 60)
    assert off.returncode == 0, off.stderr
    assert off.stdout.count(": off, events/engine-dp") == 2
    first = engines_of(run)
    assert sorted(engine.data_parallel_rank for engine in first) == [0, 1]
    assert all(engine.closing is not None for engine in first), "an idle engine must end its trace at once"
    assert reconciled(run).summary["verdict"] == "clean"
    client.ask_all(4)
    assert len(engines_of(run)) == 2
    on = forked_vstate("trace", "on", run, "--wait", 60)
    assert on.returncode == 0, on.stderr
    assert on.stdout.count(": on, events/engine-dp") == 2
    client.ask_all(8)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0, (tmp_path / "log").read_text()[-3000:]

    engines = engines_of(run)
    assert [sorted(e.data_parallel_rank for e in pair) for pair in (engines[:2], engines[2:])] == [[0, 1], [0, 1]]
    assert len({engine.engine_id for engine in engines}) == 4
    assert len({engine.pid for engine in engines}) == 2
    told = reconciled(run)
    assert told.summary["verdict"] == "clean"
    assert told.illegal == []
    assert told.summary["requests"] == 16, "what was served while tracing was off must not be there"
    assert sum(row["kind"] == RequestKind.FINISH for row in told.rows("request")) == 16
    for folder in run.glob("events/engine-*"):
        assert list(folder.glob("request-*.arrows")), f"{folder.name} served nothing"
    assert json.loads(forked_vstate("trace", "show", run, "--json").stdout)["outcome"]["requests"] == 16
    nobody = forked_vstate("trace", "on", run)
    assert nobody.returncode == 2
    assert nobody.stderr.startswith(f"error: no engine of {run} is up")
