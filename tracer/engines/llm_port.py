"""vLLM's `LLMEngine` as the driver sees it: real time, real processing of media."""

from __future__ import annotations

import time
from typing import Any

from vstate.schemas.workload import WorkloadRequest
from vstate.tracer.engines.driver import Ended, check_fit
from vstate.tracer.workloads.prompts import PromptSource


class LlmPort:
    """Drives an `LLMEngine`."""

    def __init__(self, engine: Any, prompts: PromptSource, max_model_len: int) -> None:
        """Drive ``engine`` with requests of at most ``max_model_len`` tokens."""
        self._engine = engine
        self._prompts = prompts
        self._max_model_len = max_model_len
        self._start = time.monotonic()

    def add(self, request: WorkloadRequest) -> None:
        """Render the request and give it to the engine."""
        from vllm import SamplingParams

        (rendered,) = self._engine.renderer.render_cmpl([self._prompts.prompt(request)])
        # Only now it is known how many tokens the media take.
        output = self._prompts.output_tokens(request)
        check_fit(request, len(rendered["prompt_token_ids"]), output, self._max_model_len)
        parameters = SamplingParams(max_tokens=output, ignore_eos=True, temperature=0.0, detokenize=False)
        self._engine.add_request(request.id, rendered, parameters, priority=request.priority)

    def abort(self, request_id: str) -> None:
        """Give a request up."""
        self._engine.abort_request([request_id])

    def has_unfinished(self) -> bool:
        """Whether a step would do something."""
        return bool(self._engine.has_unfinished_requests())

    def step(self) -> list[Ended]:
        """Make one step."""
        return [Ended(output.request_id, output.finished) for output in self._engine.step()]

    def seconds(self) -> float:
        """Return the time since the start."""
        return time.monotonic() - self._start

    def wait_until(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(max(0.0, seconds - self.seconds()))
