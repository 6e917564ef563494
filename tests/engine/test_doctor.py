"""`vstate doctor` on the installed vLLM: the probe's books, and plans against what real engines had."""

import json
import os
import re
from pathlib import Path

import pytest

from support.runs import forked_vstate, make_run
from support.zygote import run_forked
from vstate.doctor.plan import PlanAnswer, planned

TESTS = Path(__file__).resolve().parents[1]
POOL_BYTES = 2**30
REAL_BLOCKS = 40
ONE_REQUEST = {
    "id": "only",
    "when": {"at_step": 0},
    "prompt": [{"name": "a", "length": {"tokens": 20}}],
    "output": {"tokens": 2},
}
BEHIND_THE_HOOKS = """
import sys, importlib.abc, importlib.machinery
class Fork(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "vllm.v1.core.single_type_kv_cache_manager":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        def changed(module):
            execute(module)
            def free(manager, request_id):
                for block in manager.pop_blocks_for_free(request_id):
                    if not block.is_null:
                        block.ref_cnt -= 1
                        if block.ref_cnt == 0:
                            manager.block_pool.free_block_queue.append(block)
            module.SingleTypeKVCacheManager.free = free
        spec.loader.exec_module = changed
        return spec
sys.meta_path.insert(0, Fork())
"""
"""A fork that lets blocks go without its pool's `free_blocks`."""

TRIED = {
    name: {"arguments": [f"tiny/{name}", "--num-gpu-blocks-override", str(blocks), "--max-num-seqs", "64"]}
    for name, blocks in {"qwen3-next": 34, "gemma3": 40, "qwen3.5-mtp": 60, "lfm2-moe": 50, "qwen3-draft": 30}.items()
}
UNKNOWN = "give tiny/NAME, a model folder, or a hub id"
WRONG = {
    "no such tiny model": (["tiny/nothing"], "unknown model tiny/nothing; there are tiny/qwen3"),
    "no folder": (["./nothing"], f"unknown model ./nothing: {UNKNOWN}"),
    "no such id": (["no/model"], "unknown model no/model: it is not on this machine; give tiny/NAME or a model folder"),
    "unknown option": (["tiny/qwen3", "--no-such"], "vllm serve: unrecognized arguments: --no-such"),
    "not a number": (["tiny/qwen3", "--max-num-seqs", "x"], "argument --max-num-seqs: invalid int value: 'x'"),
    "out of range": (["tiny/qwen3", "--max-num-seqs", "-1"], "max_num_seqs: Input should be greater than"),
    "pipeline": (["tiny/qwen3", "-pp", "2"], "one pipeline stage"),
}
TOO_SMALL = {"too small": {"arguments": ["tiny/qwen3-next"], "kv_cache_bytes": 1_000_000}}


@pytest.fixture(scope="module")
def plans():
    """Answers of all plans that this file asks for, made in one process."""
    cases = {name: case | {"tried": True} for name, case in TRIED.items()}
    cases |= {name: {"arguments": arguments} for name, (arguments, _) in WRONG.items()} | TOO_SMALL
    cases |= {f"memory {name}": {"arguments": [f"tiny/{name}"], "kv_cache_bytes": POOL_BYTES} for name in TRIED}
    script = TESTS / "support" / "planned.py"
    done = run_forked([script, json.dumps(cases)], os.environ | {"PYTHONPATH": str(TESTS)})
    assert done.returncode == 0, done.stderr
    return {
        name: (PlanAnswer.model_validate(found["answer"]), found.get("running"))
        for name, found in json.loads(done.stdout).items()
    }


@pytest.mark.parametrize("name", TRIED)
def test_as_many_sequences_run_as_the_plan_says(plans, name):
    """Brute force: vLLM's own scheduler is given more one-token requests than it can hold."""
    answer, running = plans[name]
    plan = planned(answer)
    assert plan.max_sequences == running < 64
    assert not plan.fits
    assert plan.verdict.startswith("max_num_seqs 64 needs ")
    assert plan.verdict.endswith(f"the pool has {plan.pools[0].usable_blocks}: at most {running} sequences")


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_line_that_says_what_to_do(plans, name):
    assert WRONG[name][1] in plans[name][0].wrong_input
    assert "\n" not in plans[name][0].wrong_input


def test_a_pool_that_vllm_refuses_is_told_with_its_own_line(plans):
    plan = planned(plans["too small"][0])
    assert not plan.fits
    assert plan.verdict.startswith("vLLM refuses to start: ValueError: To serve at least one request")


def engine_log(run, pattern):
    """The one figure that a pattern finds in what a real engine said."""
    (found,) = set(re.findall(pattern, (run.folder / "engine.log").read_text()))
    return int(found.replace(",", ""))


@pytest.mark.parametrize("name", ["qwen3-next"])
def test_a_plan_equals_what_the_real_engine_had(plans, tmp_path, name):
    """The same model under the real worker, with weights and a forward: pools, groups and capacity."""
    (tmp_path / "workload.jsonl").write_text(json.dumps(ONE_REQUEST) + "\n")
    options = ("--workload", tmp_path / "workload.jsonl", "--set", f"num_gpu_blocks_override={REAL_BLOCKS}")
    run = make_run(tmp_path / "run", "--model", f"tiny/{name}", *options, VLLM_CPU_KVCACHE_SPACE="1")
    shown = forked_vstate(
        "doctor", "--config", "--json", "--", f"tiny/{name}", "--num-gpu-blocks-override", REAL_BLOCKS
    )
    plan = json.loads(shown.stdout)["plan"]
    assert shown.returncode == int(not plan["fits"])
    real = [(pool.num_blocks, pool.block_bytes, pool.total_bytes) for pool in run.process.pools]
    assert [(pool["num_blocks"], pool["block_bytes"], pool["total_bytes"]) for pool in plan["pools"]] == real
    assert [(g["group"], g["pool"], g["layers"], g["block_tokens"]) for g in plan["groups"]] == [
        (g.group, g.pool, len(g.layers), g.block_tokens) for g in run.process.groups
    ]
    assert plan["capacity_tokens"] == engine_log(run, r"KV cache size: ([\d,]+) tokens")
    # The engine counted the blocks of 1 GiB before it took the number that it was given.
    from_memory = planned(plans[f"memory {name}"][0]).pools[0].num_blocks
    assert from_memory == engine_log(run, r"Overriding num_gpu_blocks=(\d+) with")


def test_the_verdict_is_told_before_a_start_and_fails_the_command():
    arguments = ("tiny/qwen3-next", "--num-gpu-blocks-override", "100", "--max-num-seqs", "256")
    result = forked_vstate("doctor", "--config", "--", "vllm", "serve", *arguments)
    assert result.returncode == 1, result.stderr
    assert result.stdout.splitlines()[-1] == (
        "max_num_seqs 256 needs 768 blocks in groups 0 to 2 (conv, recurrent) and 256 blocks in group 3 (full_kv), "
        "the pool has 99: at most 24 sequences"
    )


def test_the_probe_finds_that_the_books_of_this_vllm_are_recorded():
    result = forked_vstate("doctor", "--probe", "--json")
    assert result.returncode == 0, result.stdout
    probe = json.loads(result.stdout)["probe"]
    assert {operation["state"] for operation in probe["operations"]} <= {"agrees", "absent"}
    assert probe["verdict"].startswith("books agree at all ")


def test_the_probe_tells_a_fork_that_frees_behind_the_hooks(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(BEHIND_THE_HOOKS)
    result = forked_vstate("doctor", "--probe", PYTHONPATH=str(tmp_path))
    assert result.returncode == 1
    assert "fits" in result.stdout
    verdict = result.stdout.splitlines()[-1]
    assert verdict.startswith("probe: free: after step ")
    assert "1 reference by replay, 0 in the engine's books" in verdict
