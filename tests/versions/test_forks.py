"""Forks and plugins of others: told in one line, traced where they fit, and never touched where they do not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
VERSION = "99.0.0+fork"
RENAMED = "block_pool.BlockPool.touch absent: type object 'BlockPool' has no attribute 'touch'"
CHANGED = "block_pool.BlockPool.free_blocks (self, blocks, urgent) lacks ordered_blocks, from __main__"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What was found in each case of `support/forks.py`, all in one process."""
    done = subprocess.run(
        [sys.executable, str(TESTS / "support" / "forks.py"), str(tmp_path_factory.mktemp("forks"))],
        env={k: v for k, v in os.environ.items() if not k.startswith("VSTATE_")} | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    # Before 0.30, vLLM told of a missing Triton on standard output.
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("case", "told"),
    [("renamed method", RENAMED), ("changed signature", CHANGED), ("other pool", CHANGED)],
)
def test_what_does_not_fit_is_one_line_for_doctor_and_log_and_vllm_is_left_alone(found, case, told):
    assert found[case]["fit"]["misfits"] == [told]
    assert found[case]["log"] == [f"vstate: tracing is off, this vLLM does not fit: {told}; see vstate doctor"]
    assert found[case]["untouched"]


@pytest.mark.parametrize("case", ["another version", "fitting pool", "scheduler", "wrapper"])
def test_what_fits_is_traced_whatever_it_calls_itself(found, case):
    assert found[case]["fit"]["misfits"] == []
    assert found[case]["log"] == []
    assert not found[case]["untouched"]


def test_the_version_is_shown_and_never_asked(found):
    assert found["another version"]["fit"]["vllm"] == VERSION


def test_replaced_classes_and_wrappers_are_named(found):
    replaced = {case: found[case]["fit"]["replaced"] for case in ("fitting pool", "other pool", "scheduler")}
    assert replaced == {
        "fitting pool": ["BlockPool is __main__.FittingPool, which overrides touch"],
        "other pool": ["BlockPool is __main__.OtherPool, which overrides free_blocks"],
        "scheduler": ["Scheduler is __main__.ForkScheduler"],
    }
    wrapped = {a["name"]: a["wrapped_by"] for a in found["wrapper"]["fit"]["anchors"] if a["wrapped_by"]}
    assert wrapped == {"block_pool.BlockPool.free_blocks": "other_library"}
    assert found["another version"]["fit"]["replaced"] == []
    assert not any(a["wrapped_by"] for a in found["another version"]["fit"]["anchors"])


@pytest.mark.parametrize("case", ["stock books", "fitting books", "wrapped books"])
def test_books_agree_after_every_operation(found, case):
    assert found[case]["faults"] == []
    states = {operation["name"]: operation["state"] for operation in found[case]["operations"]}
    # An older minor has no pins; everything else must really have happened.
    assert {name for name, state in states.items() if state != "agrees"} <= {"pin"}
    assert states["pin"] in ("agrees", "absent")
    assert len(states) == 12
    assert all(operation["boundaries"] for operation in found[case]["operations"] if operation["state"] == "agrees")


@pytest.mark.parametrize(
    ("case", "operation", "told"),
    [
        ("releases", "free", "1 reference by replay, 0 in the engine's books"),
        ("reserves", "allocate", "0 references by replay, 1 in the engine's books"),
        ("forgets", "evict", "1 by replay, 0 in the engine's books"),
        ("miscounts", "reset", "free blocks per pool: (39,) by replay, (38,) in the engine's books"),
        ("keeps room", "encoder cache", "used by nobody: 1 by replay, 0 in the engine's books"),
        ("fails", "free", "vLLM raised RuntimeError: planted for first (forks.py:"),
    ],
)
def test_what_a_fork_does_behind_the_hooks_is_told(found, case, operation, told):
    first = found[case]["faults"][0]
    assert first.startswith(f"{operation}: ")
    assert told in first
    states = {o["name"]: o["state"] for o in found[case]["operations"]}
    before = list(states)[: list(states).index(operation)]
    # What this vLLM does not have at all can neither agree nor differ.
    assert {states[name] for name in before} <= {"agrees", "absent"}
    assert states[operation] == ("failed" if case == "fails" else "differs")


def test_wrappers_of_others_are_chained_to_and_stay(found):
    assert found["wrapped books"]["calls"] == ["free_blocks", "get_new_blocks"]
    assert found["wrapped books"]["wrapped"] == ["block_pool.BlockPool.get_new_blocks by other_library on the object"]
    assert found["undone"]["raised"] == "planted"
    assert found["undone"]["theirs"]
    assert found["undone"]["ours"] == []
    assert found["undone"]["calls"], "their wrapper must still be called"
