"""The hooks of the scheduler's requests: arrivals, ends, and releases that are put off."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.vocabulary import NOT_APPLICABLE, Holder
from vstate.tracer.modelled_time import CLOCK
from vstate.tracer.recorder import Recorder
from vstate.tracer.wrapping import HookContext, ids_by_pool, resident_ids

MOST_TOKENS = 2**31 - 1
"""What a column of tokens holds; a client may ask for any number."""


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
        CLOCK.now_ns,
        entry.key,
        entry.attempt if attempt is None else attempt,
        request.num_prompt_tokens,
        min(request.max_tokens, MOST_TOKENS),
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
        self._hook_session()
        self._hook_preemption()
        self._hook_end()
        self._hook_deferred_request()
        self._hook_deferred_copies()

    def _hook_arrival(self) -> None:
        recorder, scheduler = self._recorder, self._scheduler
        add = scheduler.add_request

        def traced_add(request: Any, *args: Any, **kwargs: Any) -> Any:
            # An id that is there already belongs to a session: this is its next part, or its end.
            extends = request.request_id in scheduler.requests
            if not extends:
                try:
                    external = getattr(request, "vstate_external_id", None) or ""
                    parent = parent_id(request.request_id, external)
                    recorder.new_request(request.request_id, external, parent)
                    request_row(recorder, RequestKind.ARRIVE, request)
                    recorder.between_boundaries(monotonic_ns())
                except BaseException as error:
                    self._failed("add_request", error)
            return add(request, *args, **kwargs)

        self._context.replace(scheduler, "add_request", traced_add)

    def _hook_session(self) -> None:
        recorder, scheduler = self._recorder, self._scheduler
        update = scheduler._update_request_as_session

        def traced_update(session: Any, *args: Any, **kwargs: Any) -> Any:
            result = update(session, *args, **kwargs)
            try:
                request_row(recorder, RequestKind.EXTEND, session)
            except BaseException as error:
                self._failed("_update_request_as_session", error)
            return result

        self._context.replace(scheduler, "_update_request_as_session", traced_update)

    def _hook_preemption(self) -> None:
        recorder, scheduler = self._recorder, self._scheduler
        preempt = scheduler._preempt_request

        def traced_preempt(request: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                self.prefilling.pop(request.request_id, None)
                request_row(recorder, RequestKind.PREEMPT, request)
                entry = recorder.entry(request.request_id)
                entry.preempted = True
                entry.refusals.clear()
            except BaseException as error:
                self._failed("_preempt_request", error)
            return preempt(request, *args, **kwargs)

        self._context.replace(scheduler, "_preempt_request", traced_preempt)

    def _hook_end(self) -> None:
        recorder, scheduler = self._recorder, self._scheduler
        free, free_blocks = scheduler._free_request, scheduler._free_blocks

        def traced_free(request: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                self.prefilling.pop(request.request_id, None)
                status = request.status.name
                kind = RequestKind.ABORT if status == "FINISHED_ABORTED" else RequestKind.FINISH
                request_row(recorder, kind, request, reason=recorder.reason(status.lower()))
            except BaseException as error:
                self._failed("_free_request", error)
            result = free(request, *args, **kwargs)
            try:
                if request.request_id in scheduler.requests:
                    self._keep_for_connector(request)
            except BaseException as error:
                self._failed("_free_request", error)
            return result

        def traced_free_blocks(request: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return free_blocks(request, *args, **kwargs)
            finally:
                # Only now: what frees its blocks still needs its key, and a connector may put that off.
                recorder.requests.pop(request.request_id, None)

        self._context.replace(scheduler, "_free_request", traced_free)
        self._context.replace(scheduler, "_free_blocks", traced_free_blocks)

    def _keep_for_connector(self, request: Any) -> None:
        """A connector still reads the blocks of a request that has ended: it holds them from now on."""
        entry, record = self._recorder.entry(request.request_id), self._recorder.blocks
        for manager, ids in self._resident(request.request_id):
            pool = self._context.pools.index(manager.block_pool)
            record(BlockKind.PIN, pool, NOT_APPLICABLE, Holder.PINNED, ids)
            record(BlockKind.UNPIN, pool, manager.kv_cache_group_id, entry.key, ids)
        # Who frees them later names the request.
        entry.key = int(Holder.PINNED)

    def _resident(self, request_id: str) -> list[tuple[Any, list[int]]]:
        """Managers that hold blocks of a request, with the ids of those blocks."""
        found = ((m, resident_ids(m.req_to_blocks.get(request_id, ()))) for m in self._context.managers)
        return [(manager, ids) for manager, ids in found if ids]

    def _hook_deferred_request(self) -> None:
        context, recorder, record = self._context, self._recorder, self._recorder.blocks
        pop = context.manager.pop_blocks_for_free

        def traced_pop(request: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                key = recorder.entry(request.request_id).key
                for manager, ids in self._resident(request.request_id):
                    pool = context.pools.index(manager.block_pool)
                    record(BlockKind.PIN, pool, NOT_APPLICABLE, Holder.DEFERRED_FREE, ids)
                    record(BlockKind.UNPIN, pool, manager.kv_cache_group_id, key, ids)
            except BaseException as error:
                self._failed("pop_blocks_for_free", error)
            return pop(request, *args, **kwargs)

        self._context.replace(context.manager, "pop_blocks_for_free", traced_pop)

    def _hook_deferred_copies(self) -> None:
        scheduler, record = self._scheduler, self._recorder.blocks
        free_retained = scheduler._free_cow_retained_blocks

        def traced_free_retained(blocks: Any, *args: Any, **kwargs: Any) -> Any:
            waiting = len(scheduler.deferred_frees)
            result = free_retained(blocks, *args, **kwargs)
            try:
                if len(scheduler.deferred_frees) > waiting:
                    for pool, ids in ids_by_pool(self._context, blocks).items():
                        record(BlockKind.PIN, pool, NOT_APPLICABLE, Holder.DEFERRED_FREE, ids)
                        record(BlockKind.UNPIN, pool, NOT_APPLICABLE, Holder.COPY_ON_WRITE, ids)
            except BaseException as error:
                self._failed("_free_cow_retained_blocks", error)
            return result

        self._context.replace(scheduler, "_free_cow_retained_blocks", traced_free_retained)
