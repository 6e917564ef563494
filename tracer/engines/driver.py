"""Drives a workload through vLLM's `LLMEngine`, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vstate.schemas.errors import VstateError
from vstate.schemas.workload import Trigger, WorkloadAbort, WorkloadRequest
from vstate.tracer.workloads.prompts import PromptSource

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
    prompts: PromptSource,
    max_model_len: int,
    told: Callable[[int, int], None],
) -> int:
    """Run all lines to their end.

    Args:
        engine: vLLM's `LLMEngine`.
        lines: The workload.
        prompts: Where prompts come from.
        max_model_len: Prompt and output must fit into it, in tokens.
        told: Called now and then with (requests ended, requests in all).

    Returns:
        Engine steps made.

    Raises:
        VstateError: A request cannot fit or holds media that the model does not take, or the
            engine makes no progress.
    """
    requests = [line for line in lines if isinstance(line, WorkloadRequest)]
    for request in requests:
        _check_fit(request, len(prompts.token_ids(request)), prompts, max_model_len)
    progress, waiting, ended = _Progress(), list(lines), 0
    quiet = 0
    while waiting or engine.has_unfinished_requests():
        ready = [line for line in waiting if progress.met(line.when)]
        waiting = [line for line in waiting if line not in ready]
        for line in ready:
            if isinstance(line, WorkloadRequest):
                _add(engine, line, prompts, max_model_len)
            elif (line.id, "finish") not in progress.happened:
                engine.abort_request([line.id])
                progress.happened.add((line.id, "finish"))
                ended += 1
        outputs = engine.step() if engine.has_unfinished_requests() else []
        progress.step += 1
        # Waiting for a later arrival is no standstill.
        quiet = 0 if outputs or ready or not engine.has_unfinished_requests() else quiet + 1
        if quiet > IDLE_STEPS:
            raise VstateError(f"no request made progress in {IDLE_STEPS} steps; see engine.log in the run")
        for output in outputs:
            progress.happened.add((output.request_id, "first_token"))
            if output.finished:
                progress.happened.add((output.request_id, "finish"))
                ended += 1
        told(ended, len(requests))
    return progress.step


def _add(engine: Any, request: WorkloadRequest, prompts: PromptSource, max_model_len: int) -> None:
    """Give a request to the engine."""
    from vllm import SamplingParams

    (rendered,) = engine.renderer.render_cmpl([prompts.prompt(request)])
    # Only now it is known how many tokens the media take.
    _check_fit(request, len(rendered["prompt_token_ids"]), prompts, max_model_len)
    output = prompts.output_tokens(request)
    parameters = SamplingParams(max_tokens=output, ignore_eos=True, temperature=0.0, detokenize=False)
    engine.add_request(request.id, rendered, parameters, priority=request.priority)


def _check_fit(request: WorkloadRequest, prompt_tokens: int, prompts: PromptSource, max_model_len: int) -> None:
    output = prompts.output_tokens(request)
    if prompt_tokens + output > max_model_len:
        raise VstateError(
            f"request {request.id!r} takes {prompt_tokens} + {output} tokens, the model takes {max_model_len}; "
            "shorten it or raise max_model_len with --set"
        )
