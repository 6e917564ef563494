"""The hooks at step boundaries: the engine's books, admissions, and the handing over of chunks."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from vstate.schemas.tables.request import RequestKind
from vstate.schemas.tables.step import StepKind
from vstate.schemas.vocabulary import NOT_APPLICABLE
from vstate.tracer.admission_hook import AdmissionHook
from vstate.tracer.modelled_time import CLOCK
from vstate.tracer.request_hooks import RequestHooks, request_row
from vstate.tracer.snapshots import take_snapshot
from vstate.tracer.wrapping import HookContext

STEPS_IN_FLIGHT = 1024
"""Steps whose end is waited for; an engine that gives outputs up never says so."""

_SCHEDULED, _COMPLETED = int(StepKind.SCHEDULED), int(StepKind.COMPLETED)


class StepHooks:
    """Records both boundaries of each step."""

    def __init__(self, context: HookContext, requests: RequestHooks, admission: AdmissionHook) -> None:
        """Prepare the hooks of one scheduler."""
        self._context = context
        self._recorder = context.recorder
        self._scheduler = context.scheduler
        self._requests = requests
        self._admission = admission
        self._step_of_output: dict[int, int] = {}

    def install(self) -> None:
        """Put the hooks in place."""
        recorder, scheduler = self._recorder, self._scheduler
        schedule, update = scheduler.schedule, scheduler.update_from_output

        def traced_schedule(*args: Any, **kwargs: Any) -> Any:
            recorder.step += 1
            try:
                output = schedule(*args, **kwargs)
            except BaseException:
                # A signal or a fault of the engine: what was under way is half in its books and half recorded.
                recorder.lose()
                raise
            try:
                self._admission.disarm()
                self._record_schedule(output)
                self._step_row(_SCHEDULED, recorder.step, output.total_num_scheduled_tokens)
            except BaseException as error:
                self._context.failed("schedule", error)
            self._boundary(idle=False)
            return output

        def traced_update(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                result = update(scheduler_output, *args, **kwargs)
            except BaseException:
                recorder.lose()
                raise
            try:
                step = self._step_of_output.pop(id(scheduler_output), NOT_APPLICABLE)
                self._step_row(_COMPLETED, step, 0)
            except BaseException as error:
                self._context.failed("update_from_output", error)
            self._boundary(idle=not scheduler.requests)
            return result

        self._context.replace(scheduler, "schedule", traced_schedule)
        self._context.replace(scheduler, "update_from_output", traced_update)

    def _boundary(self, *, idle: bool) -> None:
        """Hand over what is due; apart from the rows, so that a fault in them does not pile them up."""
        try:
            self._recorder.boundary(monotonic_ns(), self._snapshot, idle=idle)
        except BaseException as error:
            self._context.failed("boundary", error)

    def _snapshot(self) -> None:
        take_snapshot(self._context)

    def _record_schedule(self, output: Any) -> None:
        steps = self._step_of_output
        steps[id(output)] = self._recorder.step
        if len(steps) > STEPS_IN_FLIGHT:
            del steps[next(iter(steps))]
        if output.scheduled_new_reqs or output.scheduled_cached_reqs.resumed_req_ids:
            self._record_admissions(output)
        if self._requests.prefilling:
            self._record_chunks(output.num_scheduled_tokens)

    def _record_admissions(self, output: Any) -> None:
        cached = output.scheduled_cached_reqs
        admitted = [(new.req_id, new.num_computed_tokens) for new in output.scheduled_new_reqs]
        if cached.resumed_req_ids:
            resumed = zip(cached.req_ids, cached.num_computed_tokens, strict=True)
            admitted += [(req_id, hit) for req_id, hit in resumed if req_id in cached.resumed_req_ids]
        for request_id, hit in admitted:
            request = self._scheduler.requests[request_id]
            entry = self._recorder.entry(request_id)
            self._requests.prefilling[request_id] = request
            entry.refusals.clear()
            entry.refused_blocks = 0
            if entry.attempt and not entry.preempted:
                # The next turn of a session: it never let its blocks go, so nothing is admitted anew.
                continue
            kind = RequestKind.RESUME if entry.attempt else RequestKind.ADMIT
            entry.attempt += 1
            entry.preempted = False
            scheduled = output.num_scheduled_tokens[request_id]
            request_row(self._recorder, kind, request, scheduled=scheduled, hit=hit)

    def _record_chunks(self, scheduled_tokens: dict[str, int]) -> None:
        for request_id, request in list(self._requests.prefilling.items()):
            scheduled = scheduled_tokens.get(request_id)
            if scheduled is not None:
                request_row(self._recorder, RequestKind.PREFILL_CHUNK, request, scheduled=scheduled)
                if request.num_computed_tokens >= request.num_tokens:
                    del self._requests.prefilling[request_id]

    def _step_row(self, kind: int, step: int, scheduled_tokens: int) -> None:
        scheduler, pools = self._scheduler, self._context.pools
        running, waiting = scheduler.get_request_counts()
        deferred = scheduler.deferred_frees
        books = [pool.free_block_queue.num_free_blocks for pool in pools]
        books += [len(pool.cached_block_hash_to_block) for pool in pools]
        self._recorder.row(
            "step",
            step,
            kind,
            monotonic_ns(),
            CLOCK.now_ns,
            running,
            waiting,
            sum(len(blocks) for _, blocks in deferred) if deferred else 0,
            scheduled_tokens,
            getattr(scheduler.encoder_cache_manager, "num_free_slots", NOT_APPLICABLE),
            len(pools),
            len(pools),
            values=books,
        )
