"""The hooks of the scheduler's requests: arrivals, ends, and releases that are put off."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.vocabulary import NOT_APPLICABLE, Holder
from vstate.tracer.recorder import Recorder
from vstate.tracer.wrapping import HookContext, replace_method, resident_ids


def request_row(
    recorder: Recorder,
    kind: RequestKind,
    request: Any,
    *,
    attempt: int | None = None,
    scheduled: int = NOT_APPLICABLE,
    hit: int = NOT_APPLICABLE,
    reason: int = NOT_APPLICABLE,
) -> None:
    """Write a row of the table `request` with the request's present lengths.

    ``scheduled`` tokens are counted by vLLM as computed already and are taken off again.
    """
    entry = recorder.entry(request.request_id)
    recorder.row(
        "request",
        recorder.step,
        kind,
        monotonic_ns(),
        entry.key,
        entry.attempt if attempt is None else attempt,
        request.num_prompt_tokens,
        request.max_tokens,
        request.num_tokens,
        request.num_computed_tokens - max(scheduled, 0),
        scheduled,
        hit,
        len(request.mm_features or ()),
        reason,
    )


def parent_id(request_id: str, external: str) -> str:
    """Internal id that a request of `n > 1` was fanned out from, else an empty string.

    vLLM names the children ``<index>_<internal id>`` (``ParentRequest.get_child_info``).
    """
    index, separator, parent = request_id.partition("_")
    fanned_out = separator and index.isdigit() and external and parent.startswith(external)
    return parent if fanned_out else ""


class RequestHooks:
    """Records the lives of requests.

    Attributes:
        prefilling: Live requests whose prompt is not wholly scheduled yet, by internal id.
    """

    def __init__(self, context: HookContext) -> None:
        """Prepare the hooks of one scheduler."""
        self._context = context
        self._recorder = context.recorder
        self._scheduler = context.scheduler
        self._failed = context.failed
        self.prefilling: dict[str, Any] = {}

    def install(self) -> None:
        """Put the hooks in place."""
        self._hook_arrival()
        self._hook_preemption()
        self._hook_end()
        self._hook_deferred_request()
        self._hook_deferred_copies()

    def _hook_arrival(self) -> None:
        recorder, scheduler = self._recorder, self._scheduler
        add = scheduler.add_request

        def traced_add(request: Any) -> Any:
            extends = request.request_id in scheduler.requests
            result = add(request)
            try:
                if extends:
                    # The session's own request carries the lengths that hold from now on.
                    session = scheduler.requests.get(request.request_id, request)
                    request_row(recorder, RequestKind.EXTEND, session)
                else:
                    external = getattr(request, "vstate_external_id", None) or ""
                    parent = parent_id(request.request_id, external)
                    recorder.new_request(request.request_id, external, parent)
                    request_row(recorder, RequestKind.ARRIVE, request)
            except Exception as error:
                self._failed("add_request", error)
            return result

        replace_method(scheduler, "add_request", traced_add)

    def _hook_preemption(self) -> None:
        recorder, scheduler = self._recorder, self._scheduler
        preempt = scheduler._preempt_request

        def traced_preempt(request: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                self.prefilling.pop(request.request_id, None)
                request_row(recorder, RequestKind.PREEMPT, request)
                recorder.entry(request.request_id).refusals.clear()
            except Exception as error:
                self._failed("_preempt_request", error)
            return preempt(request, *args, **kwargs)

        replace_method(scheduler, "_preempt_request", traced_preempt)

    def _hook_end(self) -> None:
        recorder, scheduler = self._recorder, self._scheduler
        free, free_blocks = scheduler._free_request, scheduler._free_blocks

        def traced_free(request: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                self.prefilling.pop(request.request_id, None)
                status = request.status.name
                kind = RequestKind.ABORT if status == "FINISHED_ABORTED" else RequestKind.FINISH
                request_row(recorder, kind, request, reason=recorder.reason(status.lower()))
            except Exception as error:
                self._failed("_free_request", error)
            return free(request, *args, **kwargs)

        def traced_free_blocks(request: Any) -> Any:
            try:
                return free_blocks(request)
            finally:
                # Only now: what frees its blocks still needs its key, and a connector may put that off.
                recorder.requests.pop(request.request_id, None)

        replace_method(scheduler, "_free_request", traced_free)
        replace_method(scheduler, "_free_blocks", traced_free_blocks)

    def _hook_deferred_request(self) -> None:
        context, recorder, record = self._context, self._recorder, self._recorder.blocks
        pop = context.manager.pop_blocks_for_free

        def traced_pop(request: Any) -> Any:
            try:
                key = recorder.entry(request.request_id).key
                for manager in context.managers:
                    ids = resident_ids(manager.req_to_blocks.get(request.request_id, ()))
                    if ids:
                        pool = context.pools.index(manager.block_pool)
                        record(BlockKind.PIN, pool, NOT_APPLICABLE, Holder.DEFERRED_FREE, ids)
                        record(BlockKind.UNPIN, pool, manager.kv_cache_group_id, key, ids)
            except Exception as error:
                self._failed("pop_blocks_for_free", error)
            return pop(request)

        replace_method(context.manager, "pop_blocks_for_free", traced_pop)

    def _hook_deferred_copies(self) -> None:
        scheduler, record = self._scheduler, self._recorder.blocks
        free_retained = scheduler._free_cow_retained_blocks

        def traced_free_retained(blocks: Any, fence_seq: int) -> Any:
            waiting = len(scheduler.deferred_frees)
            result = free_retained(blocks, fence_seq)
            try:
                if len(scheduler.deferred_frees) > waiting:
                    ids = resident_ids(blocks)
                    record(BlockKind.PIN, 0, NOT_APPLICABLE, Holder.DEFERRED_FREE, ids)
                    record(BlockKind.UNPIN, 0, NOT_APPLICABLE, Holder.COPY_ON_WRITE, ids)
            except Exception as error:
                self._failed("_free_cow_retained_blocks", error)
            return result

        replace_method(scheduler, "_free_cow_retained_blocks", traced_free_retained)
