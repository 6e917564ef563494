"""Each rule of the tables matters: changed, some drawn life no longer holds what vLLM's managers hold."""

import random
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

pytest.importorskip("vllm.v1.core.kv_cache_manager")

from support.shadow_lives import Life, attention, engines, states, uncached  # noqa: E402
from vstate.inventory.estimator import occupancy  # noqa: E402

# The lives are led once; a second process of pytest would lead them again.
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("lives")]

FILE = Path(__file__).parents[4] / "inventory" / "estimator" / "tables.py"
MUTATIONS = {
    "blocks below a window": (
        "max(0, tokens - rule.window) // rule.block",
        "max(0, tokens - rule.window - 1) // rule.block",
    ),
    "chunks": ("tokens // rule.chunk * rule.chunk // rule.block", "0"),
    "reference window": ("moment.processed - rule.decode_window", "moment.processed - rule.decode_window - 1"),
    "blocks of a hit in a window": ("max(self._gone_to, self._length - self._rule.hit_blocks)", "self._gone_to"),
    "hits of groups that are not cached": ("if not self._rule.cached:", "if False:"),
    "copy of a hit": ("peak = self._held + 1", "peak = 0"),
    "draft slots without alignment": ("// rule.block) + rule.extra)", "// rule.block))"),
    "what is processed": ("self._unneeded(moment.processed)", "self._unneeded(moment.computed)"),
    "states let go": ("if end > self._retired:", "if False:"),
    "states let go, processed": (
        "self._let_go(moment.processed)\n        checkpoint",
        "self._let_go(moment.computed)\n        checkpoint",
    ),
    "draft slots": ("required = -(-end // rule.block) + rule.extra", "required = -(-end // rule.block)"),
    "exports": ("peak = self._allocate(moment.end, int(checkpoint))", "peak = self._allocate(moment.end, 0)"),
    "exports, sparse": ("not engine.sparse or", "True or"),
    "exports, alignment": ("(at - start) % rule.checkpoint_alignment == 0", "True"),
    "exports, boundary": ("and at > start", "and at > 0"),
    "exports, start": ("start % rule.hash_block == 0", "True"),
    "tail of a prompt": ("self._copied = self._copied or index in self._held", "pass"),
    "tail of a prompt, drafts": ("return max(boundary - unit if drops else boundary, 0)", "return boundary"),
    "state of a hit": ("self._held = {self._length - 1}", "self._held = set()"),
}


@cache
def lives():
    """Requests led through drawn engines: (request, trajectory, rules, what was held)."""
    found = []
    for layouts, count in ((attention(), 600), (uncached(), 40), (states(), 700)):

        @seeded(1)
        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=[*HealthCheck],
        )
        @given(engine=engines(layouts), number=st.integers(0, 2**32))
        def lead(engine, number):
            life = Life(engine, random.Random(number).getrandbits(32))
            for turn in range(3):
                request, run = life.lead(str(turn))
                found.append((request, run.trajectory, life.rules, tuple(run.seen)))

        lead()
    return found


def all_equal():
    for request, trajectory, rules, seen in lives():
        try:
            if occupancy(request, trajectory, rules) != seen:
                return False
        except (KeyError, IndexError):
            return False
    return True


def test_what_is_mutated_is_right_before():
    assert all_equal()


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_caught(name, monkeypatch):
    source = FILE.read_text()
    before, after = MUTATIONS[name]
    assert before in source
    names = {"__name__": "vstate.inventory.estimator.mutated"}
    exec(compile(source.replace(before, after), str(FILE), "exec"), names)
    # By its name, because the package gives that of the module to the function.
    module = import_module("vstate.inventory.estimator.occupancy")
    monkeypatch.setattr(module, "new_table", names["new_table"])
    assert not all_equal()
