"""Drives a workload through vLLM's `LLMEngine`, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vstate.schemas.errors import VstateError
from vstate.schemas.workload import Trigger, WorkloadAbort, WorkloadRequest
from vstate.tracer.workloads.tokens import TokenSource

IDLE_STEPS = 10_000
"""Steps without an output after which a run is given up: the engine is stuck."""


@dataclass
class _Progress:
    """What has happened so far, for triggers."""

    step: int = 0
    happened: set[tuple[str, str]] = field(default_factory=set)

    def met(self, when: Trigger) -> bool:
        if when.at_step is not None:
            return self.step >= when.at_step
        return (str(when.after), when.event) in self.happened


def drive(
    engine: Any,
    lines: list[WorkloadRequest | WorkloadAbort],
    tokens: TokenSource,
    block_tokens: int,
    max_model_len: int,
    told: Callable[[int, int], None],
) -> int:
    """Run all lines to their end.

    Args:
        engine: vLLM's `LLMEngine`.
        lines: The workload.
        tokens: Where prompts come from.
        block_tokens: Unit of the workload's lengths.
        max_model_len: Prompt and output must fit into it, in tokens.
        told: Called now and then with (requests ended, requests in all).

    Returns:
        Engine steps made.

    Raises:
        VstateError: A request cannot fit, or the engine makes no progress.
    """
    requests = {line.id: _sized(line, tokens, block_tokens, max_model_len) for line in lines if _is_request(line)}
    progress, waiting, ended = _Progress(), list(lines), 0
    quiet = 0
    while waiting or engine.has_unfinished_requests():
        ready = [line for line in waiting if progress.met(line.when)]
        waiting = [line for line in waiting if line not in ready]
        for line in ready:
            ended += _apply(engine, line, requests, progress)
        outputs = engine.step() if engine.has_unfinished_requests() else []
        progress.step += 1
        quiet = 0 if outputs or ready else quiet + 1
        if quiet > IDLE_STEPS:
            raise VstateError(f"no request made progress in {IDLE_STEPS} steps; see engine.log in the run")
        for output in outputs:
            progress.happened.add((output.request_id, "first_token"))
            if output.finished:
                progress.happened.add((output.request_id, "finish"))
                ended += 1
        told(ended, len(requests))
    return progress.step


def _is_request(line: WorkloadRequest | WorkloadAbort) -> bool:
    return isinstance(line, WorkloadRequest)


def _sized(line: Any, tokens: TokenSource, block_tokens: int, max_model_len: int) -> tuple[list[int], int]:
    """Prompt tokens and output length of a request."""
    prompt = tokens.prompt(line.prompt, block_tokens)
    output = line.output.resolve(block_tokens)
    if len(prompt) + output > max_model_len:
        raise VstateError(
            f"request {line.id!r} takes {len(prompt)} + {output} tokens, the model takes {max_model_len}; "
            "shorten it or raise max_model_len with --set"
        )
    return prompt, output


def _apply(
    engine: Any,
    line: WorkloadRequest | WorkloadAbort,
    requests: dict[str, tuple[list[int], int]],
    progress: _Progress,
) -> int:
    """Add or abort a request; returns how many requests ended by it."""
    from vllm import SamplingParams

    if isinstance(line, WorkloadAbort):
        if (line.id, "finish") in progress.happened:
            return 0
        engine.abort_request([line.id])
        progress.happened.add((line.id, "finish"))
        return 1
    prompt, output = requests[line.id]
    parameters = SamplingParams(max_tokens=output, ignore_eos=True, temperature=0.0, detokenize=False)
    engine.add_request(line.id, {"prompt_token_ids": prompt}, parameters, priority=line.priority)
    return 0
