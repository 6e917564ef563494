"""For each class of state, a way through vLLM's own manager on which a request holds as much as the bound says."""

import pytest

pytest.importorskip("vllm.v1.core.kv_cache_manager")

from support import shadow  # noqa: E402
from support.shadow import Engine, Shadow, Watch  # noqa: E402
from vstate.inventory.estimator import RequestShape, bound, occupancy  # noqa: E402

pytestmark = pytest.mark.long

BLOCK = 16
DRAFTS = {"drafts": 3, "lookahead": 3}
ALIGNED = {"scheduler_block": 64, "hash_block": 16, "chunk": 130}
EXPORT = {"num_prefill_checkpoint_blocks": 1, "prefill_checkpoint_alignment": 1}
TWO_AHEAD = {"steps": 2, "asynchronous": True}


def paged(*specs, **more):
    return Engine([(spec, False) for spec in specs], scheduler_block=more.pop("scheduler_block", BLOCK), **more)


def aligned(**more):
    own = {name: more.pop(name) for name in (*EXPORT, "num_speculative_blocks") if name in more}
    return paged(shadow.full(64), shadow.state(64, **own), **(ALIGNED | more))


CASES = {
    # Class: engine, group, prompt, output, other request before it, steps.
    # A step is (tokens, drafts, accepted); an odd number between them processes so many steps.
    "full KV": (paged(shadow.full(BLOCK)), 0, 40, 25, 0, [(40,), 1] + [(1,), 1] * 24),
    "latent KV": (paged(shadow.latent(BLOCK)), 0, 40, 10, 0, [(40,), 1] + [(1,), 1] * 9),
    "full KV, drafts past the end": (
        paged(shadow.full(1), scheduler_block=1, **DRAFTS),
        0,
        10,
        4,
        0,
        [(10,), 1, (4, 3, 1), 1, (4, 3, 0), 1],
    ),
    "full KV, two steps of drafts past the end": (
        paged(shadow.full(1), scheduler_block=1, **DRAFTS, **TWO_AHEAD),
        0,
        10,
        4,
        0,
        [(10,), 1, (4, 3, 0), 1, (4, 3, 0), (4, 3, 0), 2],
    ),
    "full KV, hit inside its last block": (aligned(), 0, 50, 4, 50, [(2,), 1]),
    "sliding KV": (
        paged(shadow.full(BLOCK), shadow.sliding(BLOCK, 40), chunk=50),
        1,
        200,
        2,
        0,
        [(47,), 1, (7,), 1, (50,)],
    ),
    "sliding KV, decoding": (
        paged(shadow.full(BLOCK), shadow.sliding(BLOCK, 40), chunk=8),
        1,
        8,
        90,
        0,
        [(8,), 1] + [(1,), 1] * 60,
    ),
    "sliding KV with tokens retained for a draft": (
        paged(shadow.full(BLOCK), shadow.sliding(BLOCK, 40, 2), chunk=50),
        1,
        200,
        2,
        0,
        [(49,), 1, (7,), 1, (50,)],
    ),
    "sliding KV, two steps in flight": (
        paged(shadow.full(BLOCK), shadow.sliding(BLOCK, 40), chunk=50, **TWO_AHEAD),
        1,
        300,
        2,
        0,
        [(47,), 1, (7,), 1, (50,), (50,)],
    ),
    "chunked local KV": (
        paged(shadow.full(BLOCK), shadow.chunked(BLOCK, 64), chunk=50),
        1,
        200,
        2,
        0,
        [(50,), 1, (13,), 1, (50,)],
    ),
    "reference window": (paged(shadow.reference(BLOCK, 40)), 0, 30, 100, 0, [(30,), 1] + [(1,), 1] * 80),
    "ring": (paged(shadow.full(BLOCK), shadow.ring(BLOCK)), 1, 30, 2, 0, [(30,), 1]),
    "cross KV": (
        paged(shadow.full(BLOCK), shadow.cross(BLOCK), caching=False, encoder_tokens=70),
        1,
        30,
        2,
        0,
        [(30,), 1],
    ),
    "recurrent, no prefix cache": (
        paged(
            shadow.full(BLOCK),
            shadow.state(1024, "none", num_speculative_blocks=3),
            scheduler_block=1024,
            caching=False,
            model_len=1024,
            drafts=3,
        ),
        1,
        30,
        4,
        0,
        [(30,), 1],
    ),
    "recurrent, aligned": (aligned(), 1, 100, 2, 0, [(64,), 1, (36,), 1]),
    "recurrent, aligned, draft slots": (
        aligned(num_speculative_blocks=3, drafts=3),
        1,
        100,
        8,
        0,
        [(64,), 1, (36,), 1],
    ),
    "recurrent, aligned, decoding over a boundary": (aligned(hash_block=64), 1, 60, 9, 0, [(60,), 1] + [(1,), 1] * 5),
    "recurrent, aligned, two steps in flight": (
        aligned(**TWO_AHEAD),
        1,
        300,
        2,
        0,
        [(64,), 1, (64,), (64,)],
    ),
    "recurrent, aligned, hit inside a block": (aligned(), 1, 50, 1, 50, [(2,), 1]),
    "recurrent, aligned, export from inside a chunk": (
        aligned(**EXPORT, hash_block=64),
        1,
        200,
        2,
        0,
        [(64,), 1, (128,), 1],
    ),
    "recurrent, aligned, export after a hit inside a block": (
        aligned(**EXPORT, retention=0, chunk=140),
        1,
        170,
        2,
        33,
        [(138,), 1],
    ),
    "recurrent, aligned, export, draft slots": (
        aligned(**EXPORT, num_speculative_blocks=2, drafts=2, hash_block=64),
        1,
        200,
        2,
        0,
        [(64,), 1, (128,), 1],
    ),
    "recurrent, aligned, exports of two steps in flight": (
        aligned(**EXPORT, hash_block=64, **TWO_AHEAD),
        1,
        390,
        2,
        0,
        [(64,), 1, (128,), (128,)],
    ),
}


def lead(run, steps):
    for step in steps:
        if isinstance(step, int):
            for _ in range(step):
                run.process()
        else:
            run.schedule(*step)


@pytest.mark.parametrize("case", CASES)
def test_a_request_can_hold_what_the_bound_says(case):
    engine, group, prompt, output, before, steps = CASES[case]
    manager = engine.manager()
    rules, watch = engine.rules(manager), Watch(manager)
    if before:
        other = Shadow(engine, manager, watch, engine.request("before", range(before), 2))
        other.admit()
        tail = (before - 1) // engine.hash_block * engine.hash_block
        lead(other, [(tail,), 1, (before - tail,), 1])
        other.end()
    encoder = engine.encoder_tokens or None
    run = Shadow(engine, manager, watch, engine.request("request", range(prompt), output), encoder or 0)
    assert (run.admit() > 0) == (before > 0)
    lead(run, steps)
    request = RequestShape(prompt, output, 0, encoder)
    most = max(step.peak[group] for step in run.seen)
    assert most == bound(request, rules)[group]
    assert occupancy(request, run.trajectory, rules) == tuple(run.seen)
