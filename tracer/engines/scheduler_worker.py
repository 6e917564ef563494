"""The worker of the engine `scheduler`: no forward, but seeded tokens, drafts, and the time a step would take."""

from __future__ import annotations

from typing import Any

import numpy as np
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, DraftTokenIds, ModelRunnerOutput

from vstate.inventory.tensors import shape_bytes
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import GIB
from vstate.tracer.engines.meta_model import build_draft, parameters_of
from vstate.tracer.engines.request import WorkerSettings
from vstate.tracer.engines.resolve import SETTINGS_KEY
from vstate.tracer.engines.seeded import SeededModel
from vstate.tracer.engines.stand_in import StandInWorker
from vstate.tracer.engines.step_costs import StepCosts, step_costs
from vstate.tracer.modelled_time import CLOCK
from vstate.tracer.models.meta_build import construction_patches


class Progress:
    """What the worker keeps of a request that has begun."""

    __slots__ = ("embeds", "prompt", "start")

    def __init__(self, start: int, prompt: int, embeds: list[int]) -> None:
        """Keep where its draws start, the tokens of its prompt, and the rows of its media items."""
        self.start = start
        self.prompt = prompt
        self.embeds = embeds


class SchedulerWorker(StandInWorker):
    """Answers as a model would in number, not in content."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take vLLM's arguments unchanged."""
        super().__init__(*args, **kwargs)
        self._settings = WorkerSettings.model_validate(self.vllm_config.additional_config[SETTINGS_KEY])
        vocabulary = self.model_config.get_vocab_size()
        self._model = SeededModel(self._settings.seed, vocabulary, self._settings.acceptance)
        self._requests: dict[str, Progress] = {}
        self._drafts: DraftTokenIds | None = None
        speculative = self.vllm_config.speculative_config
        self._draft_tokens = speculative.num_speculative_tokens if speculative is not None else 0
        self.costs: StepCosts | None = None

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Build the model, and a draft that is a model, on the meta device, whatever kernels this platform lacks."""
        with construction_patches():
            super().load_model(load_dummy_weights=load_dummy_weights)
            self.draft = build_draft(self.vllm_config)
        self.weights_memory_bytes = shape_bytes(parameters_of(self.model, self.draft))

    def determine_available_memory(self) -> int:
        """Return the bytes that the pool may take: the device's share for vLLM less the weights of one rank.

        Nothing is taken off for activations: what a forward needs is not known without one.

        Raises:
            VstateError: The weights do not fit.
        """
        cache, memory = self.vllm_config.cache_config, self._settings.device_memory_bytes
        if not memory:
            return cache.kv_cache_memory_bytes or super().determine_available_memory()
        left = int(memory * cache.gpu_memory_utilization) - self.weights_memory_bytes
        if left <= 0:
            raise VstateError(
                f"the weights take {self.weights_memory_bytes / GIB:.1f} GiB of each device's {memory / GIB:.1f} GiB, "
                "which leaves nothing for state; give more --tensor-parallel or a larger --device"
            )
        return left

    def compile_or_warm_up_model(self) -> Any:
        """Take the costs of a step."""
        self.costs = step_costs(self.vllm_config, self.model, self.draft, self.get_kv_cache_spec())
        return super().compile_or_warm_up_model()

    def take_draft_token_ids(self) -> DraftTokenIds | None:
        """Return the drafts for the next step."""
        drafts, self._drafts = self._drafts, None
        return drafts

    def execute_model(self, scheduler_output: Any) -> ModelRunnerOutput:
        """Return tokens for each request whose known tokens are computed with this step, and let its time pass."""
        scheduled = scheduler_output.num_scheduled_tokens
        requests = self._requests
        for request_id in scheduler_output.finished_req_ids:
            requests.pop(request_id, None)
        if not scheduled:
            return EMPTY_MODEL_RUNNER_OUTPUT
        request_ids: list[str] = []
        computed: list[int] = []
        outputs: list[int] = []
        for new in scheduler_output.scheduled_new_reqs:
            embeds = [feature.mm_position.get_num_embeds() for feature in new.mm_features or ()]
            requests[new.req_id] = Progress(self._model.start(new.req_id), len(new.prompt_token_ids), embeds)
            request_ids.append(new.req_id)
            computed.append(new.num_computed_tokens)
            outputs.append(0)
        cached = scheduler_output.scheduled_cached_reqs
        request_ids += cached.req_ids
        computed += cached.num_computed_tokens
        outputs += cached.num_output_tokens
        counts = [scheduled[request_id] for request_id in request_ids]
        self._pass_time(scheduler_output, computed, counts)
        sampled = self._sample(scheduler_output, request_ids, computed, outputs, counts)
        index = {request_id: number for number, request_id in enumerate(request_ids)}
        return ModelRunnerOutput(req_ids=request_ids, req_id_to_index=index, sampled_token_ids=sampled)

    def _sample(
        self, step: Any, request_ids: list[str], computed: list[int], outputs: list[int], counts: list[int]
    ) -> list[list[int]]:
        drafted_tokens, tokens_of, ahead = step.scheduled_spec_decode_tokens, self._model.tokens, self._draft_tokens
        sampled: list[list[int]] = []
        drafts: list[list[int]] = []
        for request_id, done, produced, count in zip(request_ids, computed, outputs, counts, strict=True):
            request = self._requests[request_id]
            if done + count < request.prompt + produced:
                sampled.append([])
                drafts.append([])
                continue
            accepted = 0
            if drafted := drafted_tokens.get(request_id):
                accepted = self._model.accepted(request.start, produced, len(drafted))
            sampled.append(tokens_of(request.start, produced, accepted + 1))
            if ahead:
                drafts.append(tokens_of(request.start, produced + accepted + 1, ahead))
        if ahead:
            self._drafts = DraftTokenIds(request_ids, drafts)
        return sampled

    def _pass_time(self, step: Any, computed: list[int], counts: list[int]) -> None:
        if self.costs is None:
            return
        embeds = sum(
            self._requests[request_id].embeds[item]
            for request_id, items in step.scheduled_encoder_inputs.items()
            for item in items
        )
        flops, read = self.costs.of_step(np.array(computed), np.array(counts), embeds)
        CLOCK.advance(self._settings.step_time.seconds(flops, read))
