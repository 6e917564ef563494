"""vLLM's `EngineCore` as the driver sees it: virtual time, and media that are processed once per kind and size."""

from __future__ import annotations

from typing import Any

from vstate.schemas.vocabulary import NOT_APPLICABLE
from vstate.schemas.workload import WorkloadRequest
from vstate.tracer.engines.core_prompts import CorePrompts
from vstate.tracer.engines.driver import Ended, check_fit
from vstate.tracer.modelled_time import CLOCK

ORDER_SECONDS = 1e-9
"""What lies between two requests of one moment."""
IDLE_STEP_SECONDS = 0.001
"""What a step without work is taken to last."""


class CorePort:
    """Drives an `EngineCore` without the front end's copies of each request."""

    def __init__(self, core: Any, prompts: CorePrompts, max_model_len: int) -> None:
        """Drive ``core`` with requests of at most ``max_model_len`` tokens."""
        self._core = core
        self._prompts = prompts
        self._max_model_len = max_model_len
        self._moment = NOT_APPLICABLE
        self._at_this_moment = 0

    def add(self, request: WorkloadRequest) -> None:
        """Give the request to the engine core, arrived at this moment of the virtual clock."""
        from vllm import SamplingParams
        from vllm.v1.engine import EngineCoreRequest
        from vllm.v1.request import Request

        prompt, output = self._prompts.prompt(request), self._prompts.output_tokens(request)
        check_fit(request, len(prompt.token_ids), output, self._max_model_len)
        core_request = EngineCoreRequest(
            request_id=request.id,
            external_req_id=request.id,
            prompt_token_ids=prompt.token_ids,
            mm_features=prompt.features,
            sampling_params=SamplingParams(max_tokens=output, ignore_eos=True, temperature=0.0, detokenize=False),
            pooling_params=None,
            arrival_time=self._arrival_time(),
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            priority=request.priority,
        )
        made = Request.from_engine_core_request(core_request, self._core.request_block_hasher)
        # A core's own way in would look the media up in a cache that has none of them; it also keeps this id.
        made.vstate_external_id = request.id
        self._core.add_request(made)

    def _arrival_time(self) -> float:
        """Return the virtual time, so that requests of one moment keep their order: the priority policy goes by it."""
        self._at_this_moment = self._at_this_moment + 1 if CLOCK.now_ns == self._moment else 0
        self._moment = CLOCK.now_ns
        return CLOCK.seconds + self._at_this_moment * ORDER_SECONDS

    def abort(self, request_id: str) -> None:
        """Give a request up."""
        self._core.abort_requests([request_id])

    def has_unfinished(self) -> bool:
        """Whether a step would do something."""
        return bool(self._core.scheduler.has_unfinished_requests())

    def step(self) -> list[Ended]:
        """Make one step."""
        before = CLOCK.now_ns
        outputs, executed = self._core.step_fn()
        self._core.post_step(executed)
        if CLOCK.now_ns == before and not executed:
            # Nothing could be scheduled; a clock that stands still would never let a timed arrival in.
            CLOCK.advance(IDLE_STEP_SECONDS)
        return [
            Ended(output.request_id, output.finish_reason is not None)
            for of_client in (outputs or {}).values()
            for output in of_client.outputs
        ]

    def seconds(self) -> float:
        """Return the time of the virtual clock."""
        return CLOCK.seconds

    def wait_until(self, seconds: float) -> None:
        """Move the virtual clock."""
        CLOCK.wait_until(seconds)
