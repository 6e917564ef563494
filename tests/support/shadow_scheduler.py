"""vLLM's own schedulers over any groups, without workers: what requests of a crowd hold, and what was known of them.

The configuration is a real one; what an example varies is replaced in copies of its parts. Tokens, acceptance and
lengths are drawn; chunks, drafts past the end, steps in flight and preemptions are the scheduler's own.
"""

from __future__ import annotations

import copy
import random
import tempfile
from collections import deque
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from vllm import EngineArgs
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

from support.shadow import Engine, Watch
from vstate.inventory.estimator import RequestShape
from vstate.tracer.models.tiny import COMMON_ARGUMENTS, build, tiny_model


@cache
def base_config() -> Any:
    """A configuration of a tiny dense model."""
    folder = Path(tempfile.mkdtemp(prefix="vstate-shadow-"))
    return EngineArgs(model=str(build(tiny_model("qwen3"), folder)), **COMMON_ARGUMENTS).create_engine_config()


def replaced(part: Any, **fields: Any) -> Any:
    """A copy of a part of the configuration with other values, unchecked."""
    other = copy.copy(part)
    for name, value in fields.items():
        object.__setattr__(other, name, value)
    return other


def config_of(engine: Engine) -> Any:
    base = base_config()
    drafting = None
    if engine.drafts:
        no, ahead = (lambda: False), (lambda: engine.lookahead > 0)
        drafting = SimpleNamespace(
            num_speculative_tokens=engine.drafts,
            num_speculative_tokens_per_batch_size=None,
            max_num_new_slots_for_drafting=0,
            use_eagle=ahead,
            use_eagle_block_drop=ahead,
            uses_draft_model=no,
            use_dflash=no,
            use_dspark=no,
            use_multi_module_mtp=no,
        )
    return replaced(
        base,
        speculative_config=drafting,
        model_config=replaced(base.model_config, max_model_len=engine.model_len),
        cache_config=replaced(
            base.cache_config,
            block_size=engine.scheduler_block,
            enable_prefix_caching=engine.caching,
            num_gpu_blocks=engine.blocks,
            mamba_cache_mode="align" if engine.caching else "none",
        ),
        scheduler_config=replaced(
            base.scheduler_config,
            max_num_batched_tokens=engine.chunk,
            max_num_scheduled_tokens=None,
            max_num_seqs=4,
            async_scheduling=engine.asynchronous,
        ),
    )


class Held(NamedTuple):
    """One admission: what was known of it, and the most blocks it held in each group."""

    request: RequestShape
    peak: tuple[int, ...]


class Crowd:
    """Requests that a scheduler runs together until all have ended."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.luck = random.Random(seed)
        kind = AsyncScheduler if engine.asynchronous else Scheduler
        grammar = SimpleNamespace(accept_tokens=lambda *_: True, validate_tokens=lambda _, tokens: tokens)
        self.scheduler = kind(
            config_of(engine),
            engine.kv_cache_config,
            grammar,
            block_size=engine.scheduler_block,
            hash_block_size=engine.hash_block,
        )
        self.manager = self.scheduler.kv_cache_manager
        self.watch = Watch(self.manager)
        self.rules = engine.rules(self.manager)
        self.held: dict[tuple[str, int], Held] = {}
        self.preemptions = 0
        allocate = self.manager.allocate_slots

        def allocate_slots(request: Any, *arguments: Any, **named: Any) -> Any:
            self.watch.begins(request.request_id)
            given = allocate(request, *arguments, **named)
            if given is not None:
                self.note(request, self.watch.ends().peak)
            return given

        self.manager.allocate_slots = allocate_slots

    def note(self, request: Any, peak: tuple[int, ...]) -> None:
        attempt = (request.request_id, request.num_preemptions)
        shape = RequestShape(request.num_prompt_tokens, request.max_tokens, request.num_tokens)
        before = self.held.get(attempt, Held(shape, (0,) * len(peak)))
        self.held[attempt] = before._replace(peak=tuple(map(max, before.peak, peak)))

    def run(self, lengths: list[tuple[int, int]]) -> list[Held]:
        """Run requests of these prompts and outputs; their prompts share beginnings."""
        flying: deque[tuple[Any, Any]] = deque()
        waiting = [*enumerate(lengths)]
        left = 3000
        while waiting or flying or self.scheduler.has_requests():
            left -= 1
            assert left, "the requests do not end"
            while waiting and self.luck.random() < 0.4:
                number, (prompt, output) = waiting.pop(0)
                self.scheduler.add_request(self.engine.request(f"r{number}", self.tokens(prompt), output))
            output = self.scheduler.schedule()
            if output.total_num_scheduled_tokens:
                flying.append((output, self.answer(output)))
            if flying and (len(flying) >= self.engine.steps or not output.total_num_scheduled_tokens):
                self.take(*flying.popleft())
        self.preemptions = sum(attempt > 0 for _, attempt in self.held)
        return [*self.held.values()]

    def tokens(self, prompt: int) -> list[int]:
        shared = self.luck.choice([0, prompt // 2, prompt])
        return [*range(shared), *(self.luck.randint(1000, 2000) for _ in range(prompt - shared))]

    def answer(self, output: Any) -> ModelRunnerOutput:
        """Sample for each request whose tokens reach the end of what is known, and accept some of its drafts."""
        ids = [*output.num_scheduled_tokens]
        sampled = []
        for name in ids:
            drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
            ends = not self.scheduler.requests[name].is_prefill_chunk
            accepted = self.luck.choice([0, drafts, self.luck.randint(0, drafts)])
            sampled.append([7] * (1 + accepted) if ends else [])
        return ModelRunnerOutput(ids, {name: at for at, name in enumerate(ids)}, sampled)

    def take(self, output: Any, answer: ModelRunnerOutput) -> None:
        self.scheduler.update_from_output(output, answer)
        if self.engine.drafts and not self.engine.asynchronous:
            ids = [name for name, tokens in zip(answer.req_ids, answer.sampled_token_ids, strict=True) if tokens]
            drafts = [[7] * self.engine.drafts for _ in ids]
            self.scheduler.update_draft_token_ids(DraftTokenIds(ids, drafts))
