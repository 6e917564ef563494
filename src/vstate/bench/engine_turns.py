"""One engine core of the overhead benchmark, in a process of its own."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vstate.tracer.models.tiny import COMMON_ARGUMENTS, build, tiny_model

BLOCK_TOKENS = 32
"""Smallest block a CPU engine takes; a GPU's default of 16 has twice the events."""
PROMPT_TOKENS = 512
WARM_UP_STEPS = 40


@dataclass(frozen=True)
class TurnSettings:
    """What the engine runs.

    Attributes:
        running: Requests that decode together.
        lengths: ``equal`` makes all of them cross a block boundary in the same step, ``mixed`` none.
        pairs: Turns it will be asked for.
        steps: Steps of a turn.
        traced: Whether vstate traces it.
    """

    running: int
    lengths: str
    pairs: int
    steps: int
    traced: bool

    @property
    def output_tokens(self) -> int:
        """Tokens each request must be able to produce."""
        return 2 * WARM_UP_STEPS + (self.pairs + 1) * self.steps


def engine_core(settings: TurnSettings, folder: Path) -> Any:
    """Make an engine core on the stand-in worker, with a pool that all requests fit into."""
    from vllm import EngineArgs
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor import Executor

    length = PROMPT_TOKENS + settings.output_tokens + BLOCK_TOKENS * 2
    arguments = COMMON_ARGUMENTS | {
        "max_num_seqs": settings.running,
        "max_num_batched_tokens": 8192,
        "max_model_len": 4096,
        "block_size": BLOCK_TOKENS,
        "num_gpu_blocks_override": settings.running * (length // BLOCK_TOKENS + 2),
        "worker_cls": "vstate.tracer.engines.stand_in.StandInWorker",
    }
    config = EngineArgs(model=str(build(tiny_model("qwen3"), folder)), **arguments).create_engine_config()
    return EngineCore(config, Executor.get_class(config), log_stats=False)


def admit(core: Any, settings: TurnSettings) -> None:
    """Add all requests and step until each of them decodes."""
    from vllm import SamplingParams
    from vllm.v1.request import Request

    for number in range(settings.running):
        prompt = PROMPT_TOKENS - (number % BLOCK_TOKENS if settings.lengths == "mixed" else 0)
        request = Request(
            request_id=f"r{number}",
            prompt_token_ids=[(number * 31 + position) % 1000 for position in range(prompt)],
            sampling_params=SamplingParams(max_tokens=settings.output_tokens, ignore_eos=True),
            pooling_params=None,
            block_hasher=core.request_block_hasher,
        )
        core.add_request(request)
    while core.scheduler.waiting or any(r.num_output_tokens == 0 for r in core.scheduler.running):
        core.step_fn()
    for _ in range(WARM_UP_STEPS):
        core.step_fn()


def timed_steps(core: Any, steps: int) -> list[float]:
    """Seconds of each of ``steps`` steps."""
    step, clock = core.step_fn, time.perf_counter
    taken = []
    for _ in range(steps):
        start = clock()
        step()
        taken.append(clock() - start)
    return taken


def main() -> None:
    """Serve turns: a line on standard input is a turn, the answer a line of JSON."""
    settings = TurnSettings(**json.loads(sys.argv[1]))
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1"
    )
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(prefix="vstate-bench-") as scratch:
        core = engine_core(settings, Path(scratch))
        session = None
        if settings.traced:
            from vstate.tracer.anchors import check_anchors
            from vstate.tracer.session import EngineSession
            from vstate.tracer.settings import TraceSettings

            trace = TraceSettings(Path(scratch) / "run", os.urandom(16), 0)
            session = EngineSession(core.scheduler, trace, check_anchors())
            session.begin()
        # Only this thread, and only now: the writer's thread keeps all cores, as it does where it serves.
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        admit(core, settings)
        answers.write("[]\n")
        answers.flush()
        for _ in sys.stdin:
            answers.write(json.dumps(timed_steps(core, settings.steps)) + "\n")
            answers.flush()
        if session is not None:
            session.close()


if __name__ == "__main__":
    main()
