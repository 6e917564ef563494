"""The engine without a forward: its clock, its shares, its lengths, and what it says of itself."""

import json

import numpy as np
import pytest

from support.runs import forked_vstate, reconciled
from vstate.schemas.tables.names import NameKind
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.tables.step import StepKind
from vstate.tracer.engines.step_costs import StepCosts
from vstate.tracer.engines.step_fit import _steps_of
from vstate.tracer.engines.step_time import DEVICES, of_device

MILLION = 1_000_000


def traced(folder, *options, fails=False):
    made = forked_vstate("trace", "run", "--engine", "scheduler", "--out", folder, *options)
    assert (made.returncode != 0) == fails, made.stderr
    return made if fails else reconciled(folder)


def workload(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def line(name, when, tokens, output=4, **more):
    prompt = [{"name": name, "length": {"tokens": tokens}}]
    return {"id": name, "when": when, "prompt": prompt, "output": {"tokens": output}} | more


def moments(run, kind):
    names = {row["key"]: row["value"] for row in run.rows("names") if row["kind"] == NameKind.EXTERNAL}
    return {names[r["request_key"]]: r["modelled_ns"] / 1e9 for r in run.rows("request") if r["kind"] == kind}


def test_the_virtual_clock_drives_arrivals_and_think_times(tmp_path):
    lines = workload(
        tmp_path / "lines.jsonl",
        line("a", {"at_s": 5.0}, 300),
        line("b", {"at_s": 60.0}, 300),
        line("c", {"after": "a", "delay_s": 20.0}, 300),
    )
    run = traced(tmp_path / "run", "--model", "tiny/qwen3", "--device", "h100", "--workload", lines)
    arrived, ended = moments(run, RequestKind.ARRIVE), moments(run, RequestKind.FINISH)
    assert arrived["a"] == 5.0
    assert arrived["b"] == 60.0
    assert arrived["c"] == pytest.approx(ended["a"] + 20.0)
    assert all(5.0 < end < 61.0 for end in ended.values())
    assert run.manifest["modelled"]["seconds"] == pytest.approx(max(ended.values()), abs=0.1)
    real = [row["time_ns"] for row in run.rows("request")]
    assert (max(real) - min(real)) / 1e9 < 50, "the minute was waited for"


@pytest.mark.parametrize("model", ["qwen3-next", "gemma3"])
def test_a_steps_work_can_be_told_from_its_trace(tmp_path, model):
    """What fitting takes out of a trace gives the very time that the worker, which sees all, let pass."""
    run = traced(tmp_path / "run", "--model", f"tiny/{model}")
    costs = StepCosts.model_validate(run.manifest["modelled"]["costs"])
    time = of_device(DEVICES["h100"])
    passed = {}
    for row in run.rows("step"):
        passed.setdefault(row["step"], {})[row["kind"]] = row["modelled_ns"]
    expected = sorted(
        end - found[StepKind.SCHEDULED]
        for found in passed.values()
        if (end := found.get(StepKind.COMPLETED)) is not None and end > found[StepKind.SCHEDULED]
    )
    (folder,) = (run.folder / "events").glob("engine-*")
    steps = list(_steps_of(folder))
    told = sorted(time.seconds(*costs.of_step(np.array(s.computed), np.array(s.scheduled), 0)) * 1e9 for s in steps)
    # Of a request that is aborted or preempted it is not known whether its last step had been scheduled.
    unsure = run.manifest["outcome"]["aborts"] + run.manifest["outcome"]["preemptions"]
    assert len(told) >= len(expected) - unsure
    near = sum(any(abs(a - b) <= 2 for b in expected) for a in told)
    assert near >= len(told) - unsure


def test_times_of_a_real_forward_are_fitted_and_used(tmp_path):
    made = forked_vstate("trace", "run", "--model", "tiny/qwen3", "--out", tmp_path / "real")
    assert made.returncode == 0, made.stderr
    fitted = forked_vstate("trace", "fit", tmp_path / "real", "-o", tmp_path / "fit.json", "--json")
    assert fitted.returncode == 0, fitted.stderr
    model = json.loads(fitted.stdout)
    assert model["evidence"] == "fitted"
    assert min(model["fixed_seconds"], model["seconds_per_flop"], model["seconds_per_byte"]) >= 0
    assert model["steps"] > 50
    run = traced(tmp_path / "run", "--model", "tiny/qwen3", "--step-time", tmp_path / "fit.json")
    assert run.manifest["modelled"]["step_time"].startswith("fitted: ")
    again = forked_vstate("trace", "fit", tmp_path / "run", "-o", tmp_path / "other.json")
    assert again.returncode == 2
    assert "only a real forward has times" in again.stderr
    assert not (tmp_path / "other.json").exists()


def test_a_million_tokens_of_context(tmp_path):
    lines = workload(tmp_path / "lines.jsonl", line("long", {"at_s": 0.0}, MILLION - 40, output=30))
    run = traced(
        tmp_path / "run", "--model", "full/mimo-v2.5", "--set", f"max_model_len={MILLION}", "--workload", lines
    )
    assert run.manifest["outcome"]["finished"] == 1
    assert run.summary["verdict"] == "clean"
    (life,) = [e for e in run.estimates("vstate", "life") if e["group"] == 0]
    assert life["undercount_blocks"] == 0
    assert life["observed_peak_blocks"] >= (MILLION - 40) // run.process.groups[0].block_tokens
    assert run.manifest["origin"]["mismatches"], "three modules on the card, one in vLLM"
    assert run.process.backends
    assert run.process.platform.startswith("cpu")
    assert any(group.draft for group in run.process.groups)


def test_ranks_share_the_weights_and_the_state(tmp_path):
    runs = {
        ranks: traced(tmp_path / str(ranks), "--model", "full/lfm2.5-8b-a1b", "--tensor-parallel", ranks)
        for ranks in (1, 2)
    }
    whole, half = (runs[ranks].process for ranks in (1, 2))
    assert [g.block_tokens for g in whole.groups] == [g.block_tokens for g in half.groups]
    assert half.pools[0].block_bytes * 2 == whole.pools[0].block_bytes
    assert half.pools[0].total_bytes > whole.pools[0].total_bytes, "half of the weights leave more room"
    costs = {ranks: run.manifest["modelled"]["costs"] for ranks, run in runs.items()}
    assert costs[2]["experts"][0]["weight_bytes"] * 2 == costs[1]["experts"][0]["weight_bytes"]


def test_requests_that_do_not_fit_are_refused_or_left_out(tmp_path):
    lines = workload(tmp_path / "lines.jsonl", line("long", {"at_s": 0.0}, 5000), line("b", {"after": "long"}, 100))
    options = ("--model", "tiny/qwen3", "--device", "h100", "--workload", lines)
    refused = traced(tmp_path / "refused", *options, fails=True)
    assert refused.returncode == 2
    assert "request 'long' takes 5000 + 4 tokens, the model takes 1024" in refused.stderr
    assert not (tmp_path / "refused").exists()
    run = traced(tmp_path / "run", *options, "--too-long", "skip")
    assert run.manifest["skipped_requests"] == 1
    assert run.manifest["outcome"]["finished"] == 1


def test_a_pool_needs_a_size_and_weights_must_fit(tmp_path):
    lines = workload(tmp_path / "lines.jsonl", line("a", {"at_s": 0.0}, 100))
    made = traced(tmp_path / "a", "--model", "tiny/qwen3", "--workload", lines, fails=True)
    assert "nothing says how large the pool is" in made.stderr
    options = ("--model", "full/nemotron-3-super", "--tensor-parallel", 1, "--device", "h100", "--workload", lines)
    made = traced(tmp_path / "b", *options, fails=True)
    assert "which leaves nothing for state" in made.stderr
    assert len(made.stderr.strip().splitlines()) == 1
