"""Other ways to run an engine: steps in flight, a real server under a real client, restarts."""

import os
import signal
import subprocess

import openai
import pytest

from support.processes import IN_PROCESS, TESTS, free_port, model_to_serve, serve_options, succeeds, wait_until_up
from support.runs import VSTATE, Run, reconciled
from vstate.schemas.tables.request import RequestKind


@pytest.mark.parametrize("model", ["qwen3", "gemma3"])
def test_replay_holds_with_two_steps_in_flight(tmp_path, every_boundary, model):
    """AsyncScheduler with a batch queue of two, on a stand-in worker: the CPU runner cannot do it."""
    path = f"{TESTS}{os.pathsep}{every_boundary['PYTHONPATH']}"
    environment = os.environ | IN_PROCESS | {"VSTATE_TRACE_RUN": str(tmp_path / "run"), "PYTHONPATH": path}
    command = [TESTS / "support" / "async_engine.py", model]
    succeeds(command, environment)
    run = reconciled(tmp_path / "run")
    assert run.process.scheduler_class.endswith("AsyncScheduler")
    assert run.process.settings.max_in_flight_tokens == 2 * run.process.settings.max_batched_tokens
    assert run.illegal == []
    assert run.summary["verdict"] == "clean"
    assert all(e["undercount_requests"] == 0 for e in run.estimates("vstate", "life"))
    kinds = [row["kind"] for row in sorted(run.rows("step"), key=lambda row: row["seq"])]
    assert any(a == b == 0 for a, b in zip(kinds, kinds[1:], strict=False)), "no two steps were in flight"


def test_a_restart_is_a_run_of_its_own_and_can_be_switched_with_two_steps_in_flight(tmp_path, every_boundary):
    """Both starts are told the same folder; the second is switched off and on while steps are in flight."""
    path = f"{TESTS}{os.pathsep}{every_boundary['PYTHONPATH']}"
    environment = os.environ | IN_PROCESS | {"VSTATE_TRACE_DIR": str(tmp_path / "traces"), "PYTHONPATH": path}
    script, made = TESTS / "support" / "async_engine.py", []
    for arguments in (["qwen3"], ["lfm2-moe", '{"15": "off", "30": "on", "40": "off", "55": "on"}']):
        succeeds([script, *arguments], environment)
        (folder,) = set((tmp_path / "traces").iterdir()) - {run.folder for run in made}
        made.append(reconciled(folder))
    first, second = made
    assert len(list(first.folder.glob("events/engine-*"))) == 1
    assert len(list(second.folder.glob("events/engine-*"))) == 3
    assert first.summary["requests"] == 25
    for run in made:
        assert run.summary["verdict"] == "clean"
        assert run.illegal == []
        assert all(e["undercount_requests"] == 0 for e in run.estimates("vstate", "life"))
    assert all(e["unknown_requests"] > 0 for e in second.estimates("vstate", "life"))


STACKS = "import faulthandler, signal; faulthandler.register(signal.SIGUSR1)\n"
"""An engine core that does not end in time shows in the log where each of its threads is."""


def test_a_server_under_a_real_client_ends_with_a_complete_run(tmp_path):
    model = model_to_serve(tmp_path / "model", "qwen3")
    port, folder = free_port(), tmp_path / "run"
    (tmp_path / "sitecustomize.py").write_text(STACKS)
    command = [*VSTATE, "trace", "serve", "--out", str(folder), "--", str(model), *serve_options(port)]
    environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(tmp_path)}
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
            try:
                server.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.kill(Run(folder, {}).process.pid, signal.SIGUSR1)
            assert server.wait(timeout=60) == 0
        finally:
            server.kill()
    run = reconciled(folder)
    assert run.process.closing is not None, (tmp_path / "log").read_text()[-12_000:]
    assert run.manifest["engine"] == "serve"
    assert run.manifest["outcome"]["requests"] == 3
    assert run.manifest["outcome"]["prefix_hits"] == 1
    assert run.summary["verdict"] == "clean"
    assert run.illegal == []
    assert sum(row["kind"] == RequestKind.FINISH for row in run.rows("request")) == 3
    external = [row["value"] for row in run.rows("names") if row["kind"] == 1]
    assert all(value.startswith("cmpl-") for value in external)
