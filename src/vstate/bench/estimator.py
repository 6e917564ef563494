"""How long the bound of a request takes, one at a time and for many at once."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vstate.inventory.estimator import RequestShape, Rules, bound, bounds
from vstate.schemas.manifests import EngineSettings, GroupManifest

MANY = 10_000
"""Requests of one vectorised call."""
MODEL_LEN = 131_072
BATCHED_TOKENS = 8_192
BLOCK = 16
STATE_BLOCK = 528
"""Tokens of a block where a recurrent state sets it, as in true-size hybrids."""


@dataclass(frozen=True)
class EstimatorRow:
    """The times of one engine's rules, of the processor alone; all measured.

    Attributes:
        engine: What is estimated.
        groups: Groups of it.
        rules: Different rules among them; equal groups are worked out once.
        turns: Turns that were timed.
        request_us: Median time of one request, in microseconds.
        request_us_quartiles: First and third quartile.
        many_us: Median time of ``many`` requests at once, in microseconds.
        many_us_quartiles: First and third quartile.
        many: Requests of a vectorised call.
    """

    engine: str
    groups: int
    rules: int
    turns: int
    request_us: float
    request_us_quartiles: tuple[float, float]
    many_us: float
    many_us_quartiles: tuple[float, float]
    many: int = MANY


def measure_estimator(turns: int) -> list[EstimatorRow]:
    """Time the bound for engines of six groups.

    Args:
        turns: Turns of each, at least 2; in each, the single requests and the many are worked out once.
    """
    return [_measure(name, rules, turns) for name, rules in _engines().items()]


def _measure(name: str, rules: Rules, turns: int) -> EstimatorRow:
    draw = random.Random(0)
    requests = [RequestShape(draw.randint(1, MODEL_LEN // 2), draw.randint(1, 4096)) for _ in range(MANY)]
    prompts = np.array([request.prompt_tokens for request in requests])
    outputs = np.array([request.max_tokens for request in requests])
    some = requests[: MANY // 10]

    def one_by_one() -> None:
        for request in some:
            bound(request, rules)

    single = [_microseconds(one_by_one) / len(some) for _ in range(turns)]
    many = [_microseconds(lambda: bounds(prompts, outputs, rules)) for _ in range(turns)]
    return EstimatorRow(
        engine=name,
        groups=len(rules.place),
        rules=len(rules.distinct),
        turns=turns,
        request_us=round(statistics.median(single), 2),
        request_us_quartiles=_quartiles(single),
        many_us=round(statistics.median(many), 2),
        many_us_quartiles=_quartiles(many),
    )


def _microseconds(work: Callable[[], Any]) -> float:
    # What this thread computed: others on the machine do not count.
    started = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - started) / 1e3


def _quartiles(values: list[float]) -> tuple[float, float]:
    first, _, third = statistics.quantiles(values, n=4)
    return round(first, 2), round(third, 2)


def _engines() -> dict[str, Rules]:
    full, window = _group("FullAttentionSpec"), _group("SlidingWindowSpec", window_tokens=512)
    wide = _group("FullAttentionSpec", block_tokens=STATE_BLOCK)
    state = _group("MambaSpec", block_tokens=STATE_BLOCK, state_mode="align")
    drafted = state.model_copy(update={"speculative_blocks": 3})
    different = [
        _group("ChunkedLocalAttentionSpec", attention_chunk_tokens=8192),
        _group("SlidingWindowSpec", window_tokens=128),
        state.model_copy(update={"checkpoint_blocks": 1}),
    ]
    ahead = {"async_scheduling": True, "max_in_flight_tokens": 2 * BATCHED_TOKENS}
    return {
        "full and sliding": Rules.of([full] + [window] * 5, _settings()),
        "full and recurrent": Rules.of([wide] + [state] * 5, _settings()),
        "full and recurrent, 3 drafts, asynchronous": Rules.of(
            [wide] + [drafted] * 5, _settings(**ahead, draft_tokens=3, lookahead_tokens=3)
        ),
        "six different groups": Rules.of([full, window, state, *different], _settings()),
    }


def _group(kind: str, block_tokens: int = BLOCK, **more: Any) -> GroupManifest:
    return GroupManifest(
        group=0, pool=0, spec_kind=kind, manager="", layers=("layer",), block_tokens=block_tokens, **more
    )


def _settings(**more: Any) -> EngineSettings:
    settings: dict[str, Any] = {
        "model": "",
        "architecture": "",
        "dtype": "bfloat16",
        "cache_dtype": "auto",
        "max_model_len_tokens": MODEL_LEN,
        "max_batched_tokens": BATCHED_TOKENS,
        "max_in_flight_tokens": BATCHED_TOKENS,
        "lookahead_tokens": 0,
        "max_num_seqs": 256,
        "scheduler_block_tokens": BLOCK,
        "prefix_caching": True,
        "chunked_prefill": True,
        "reserve_full_prompt": True,
        "watermark_blocks": 0,
        "async_scheduling": False,
        "policy": "fcfs",
    }
    return EngineSettings(**(settings | more))
