"""Drawn engines, requests and what happens to them, for the estimator's tests against vLLM's managers."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import strategies as st

from support import shadow
from support.shadow import Engine, Shadow, Watch
from vstate.inventory.estimator import RequestShape, Rules

BLOCK = 16
# Those of whole blocks and a token are where retained tokens reach into one more block.
windows = st.one_of(st.integers(2, 100), st.integers(1, 6).map(lambda blocks: BLOCK * blocks + 1))


def draft_settings(draw: Callable, groups: list) -> dict:
    """How drafts are made, and which groups are a draft's: a group of its own, all, or none."""
    drafts = draw(st.integers(0, 3))
    if not drafts:
        return {}
    way = draw(st.sampled_from(["ngram", "flagged", "all"]))
    if way == "ngram":
        return {"drafts": drafts}
    if way == "flagged":
        groups[0] = (groups[0][0], True)
    return {"drafts": drafts, "lookahead": drafts, "drops_draft_block": True, "prefill_lookahead": 1}


@st.composite
def attention(draw):
    """Attention of every kind, alone or beside full attention."""
    window, chunk = draw(windows), BLOCK * draw(st.integers(1, 4))
    retained = draw(st.integers(0, 3))
    beside = {
        "none": None,
        "sliding": shadow.sliding(BLOCK, window, retained),
        "longer blocks": shadow.sliding(2 * BLOCK, window, retained),
        "latent window": shadow.latent_window(BLOCK, window),
        "replayed window": shadow.latent_window(BLOCK, window, bounded_replay=True, extra_retained_tokens=retained),
        "chunked": shadow.chunked(BLOCK, chunk),
        "ring": shadow.ring(BLOCK),
        "reference": shadow.reference(BLOCK, 1 + window // 4),
        "hidden": shadow.hidden(BLOCK),
    }
    kind = draw(st.sampled_from(sorted(beside)))
    first = shadow.latent(BLOCK) if draw(st.booleans()) else shadow.full(BLOCK)
    # Chunked attention alone finds a hit in an empty cache: whole chunks before the last are taken for computed.
    alone = kind not in ("none", "ring", "replayed window", "chunked") and draw(st.booleans())
    groups = [(spec, False) for spec in ([] if alone else [first]) + [beside[kind]] if spec is not None]
    more = {} if kind == "chunked" else draft_settings(draw, groups)
    block = 2 * BLOCK if kind == "longer blocks" else BLOCK
    retention = draw(st.sampled_from([None, 0, 2 * block])) if "sliding" in kind else None
    hash_block = block if alone else BLOCK
    return {"groups": groups, "scheduler_block": block, "hash_block": hash_block, "retention": retention, **more}


@st.composite
def uncached(draw):
    """What runs without a prefix cache only: states of mode `none`, cross attention."""
    model_len = 1024
    drafts = draw(st.integers(0, 3))
    state = shadow.state(model_len, "none", num_speculative_blocks=drafts)
    second = draw(st.sampled_from([state, shadow.state(64, "none"), shadow.cross(BLOCK)]))
    block = model_len if second is state else 64
    drafts = drafts if second is state else 0
    return {
        "groups": [(shadow.full(BLOCK), False), (second, False)],
        "scheduler_block": block,
        "caching": False,
        "drafts": drafts,
        "model_len": model_len,
        "encoder_tokens": 70,
    }


@st.composite
def states(draw):
    """Aligned states beside attention: retention, partial hits, drafts, exports from inside a chunk."""
    block = BLOCK * draw(st.sampled_from([1, 2, 4]))
    hash_block = draw(st.sampled_from([BLOCK, block]))
    groups = [(shadow.full(block), False)]
    more = draft_settings(draw, groups)
    exports = draw(st.sampled_from([0, 1]))
    state = shadow.state(
        block,
        num_speculative_blocks=more.get("drafts", 0),
        num_prefill_checkpoint_blocks=exports,
        prefill_checkpoint_alignment=draw(st.sampled_from([1, BLOCK, 2 * BLOCK])) if exports else None,
    )
    groups.append((state, False))
    if draw(st.booleans()):
        groups.append((shadow.sliding(draw(st.sampled_from([hash_block, block])), draw(windows)), False))
    retention = draw(st.sampled_from([None, 0, block, 4 * block]))
    return {"groups": groups, "scheduler_block": block, "hash_block": hash_block, "retention": retention, **more}


@st.composite
def engines(draw, layouts, crowd=False):
    """Engines over groups of ``layouts``; those for a crowd run as many steps ahead as vLLM does on one device."""
    asynchronous = draw(st.booleans())
    steps = draw(st.integers(2, 3)) if asynchronous else draw(st.integers(1, 2))
    if crowd:
        steps = 1 + asynchronous
    own = draw(layouts)
    own.setdefault("model_len", draw(st.sampled_from([160, 1024])))
    # A pool so small that requests are preempted, but that the longest one fits.
    blocks = draw(st.sampled_from([40, 4096])) if crowd else 4096
    own |= {"chunk": draw(st.integers(8, 130)), "steps": steps, "asynchronous": asynchronous, "blocks": blocks}
    return Engine(**own)


class Life:
    """A request that is led through admissions, chunks, decode steps and preemptions of any kind."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.luck = random.Random(seed)
        self.manager = engine.manager()
        self.watch = Watch(self.manager)
        self.rules: Rules = engine.rules(self.manager)

    def shape(self) -> tuple[int, int, int]:
        """Prompt, output and encoder tokens that fit the engine."""
        prompt = self.luck.randint(1, min(150, self.engine.model_len - 1))
        return prompt, self.luck.randint(1, 60), self.luck.randint(1, self.engine.encoder_tokens or 1)

    def tokens(self, prompt: int) -> list[int]:
        """A prompt that shares its beginning with the others of this engine."""
        shared = self.luck.choice([0, prompt // 2, prompt])
        return [*range(shared), *(self.luck.randint(1000, 2000) for _ in range(prompt - shared))]

    def lead(self, name: str) -> tuple[RequestShape, Shadow]:
        """Lead one request from its arrival to its end, or to where the model's length ends it."""
        prompt, output, encoder = self.shape()
        request = self.engine.request(name, self.tokens(prompt), output)
        shadow_run = Shadow(self.engine, self.manager, self.watch, request, encoder)
        for _ in range(self.luck.choice([1, 1, 2, 3])):
            self.attempt(shadow_run, prompt + output)
            while shadow_run.flying and (shadow_run.flying[0][3] or self.luck.random() < 0.5):
                shadow_run.process()
            if any(entry[3] for entry in shadow_run.flying):
                while shadow_run.flying:
                    shadow_run.process()
            shadow_run.preempt()
            if shadow_run.known >= min(prompt + output, self.engine.model_len):
                break
        return RequestShape(prompt, output, 0, encoder), shadow_run

    def attempt(self, run: Shadow, end: int) -> None:
        """Prefill in chunks of any size, then decode; leave off at any step."""
        engine, luck = self.engine, self.luck
        target, computed = run.known, run.admit()
        left = luck.randint(1, 40) if luck.random() < 0.5 else 1000
        while left and computed < target:
            chunk = min(luck.choice([1, 8, BLOCK, 2 * BLOCK, 64, 200]), luck.randint(1, 200), engine.chunk)
            chunk = self.cut(computed, min(computed + chunk, target), run.request.num_prompt_tokens)
            run.schedule(chunk)
            computed += chunk
            left -= 1
            self.settle(run)
        most = engine.steps if engine.asynchronous else 1
        while left:
            while len(run.flying) >= most or (run.flying and luck.random() < 0.4):
                run.process()
            if run.known >= min(end, engine.model_len) or run.computed + 2 > engine.model_len:
                break
            drafts = min(luck.choice([0, engine.drafts]), engine.model_len - run.computed - 2)
            run.schedule(1 + drafts, drafts, luck.randint(0, drafts))
            left -= 1

    def cut(self, start: int, end: int, prompt: int) -> int:
        """Tokens of a chunk that ends anywhere, or where states are kept: at a boundary, at a prompt's last hash."""
        unit = self.engine.hash_block
        ends = [end, end // self.engine.scheduler_block * self.engine.scheduler_block, end // unit * unit]
        tail = (prompt - 1) // unit * unit
        ends = [stop for stop in [*ends, tail] if start < stop <= end]
        return self.luck.choice(ends) - start

    def settle(self, run: Shadow) -> None:
        """Process so many steps that another may be put in flight."""
        while len(run.flying) >= self.engine.steps or (run.flying and self.luck.random() < 0.4):
            run.process()
