"""The one hook at vLLM's admission gate, shared by tracer and admission module.

`allocate_slots` is called for each running request in each step, so it must not be
wrapped. A waiting request passes through `_get_local_prefix_cache_hit` first: that arms
a one-shot replacement of `allocate_slots` on the instance, which removes itself.
"""

from __future__ import annotations

from typing import Any

from vstate.schemas.tables.estimate import EstimateScope, EstimateSource, EstimateVerdict
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.vocabulary import NOT_APPLICABLE
from vstate.tracer.recorder import RequestEntry
from vstate.tracer.request_hooks import request_row
from vstate.tracer.versions import takes
from vstate.tracer.wrapping import HookContext, is_on_instance

REASON_BLOCKS = "not_enough_blocks"
REASON_SAME_STEP = "prefix_written_in_this_step"

GroupEstimate = tuple[int, int]
"""Blocks of one group: to take from the free queue, and held by others and to be shared."""


class AdmissionHook:
    """Sees every decision of the gate, with the arguments it was made on."""

    def __init__(self, context: HookContext) -> None:
        """Prepare the hook of one scheduler."""
        self._context = context
        self._recorder = context.recorder
        self._manager = context.manager
        self._allocate = context.manager.allocate_slots
        # Somebody else's wrapper on the instance must be there again afterwards.
        self._foreign = is_on_instance(context.manager, "allocate_slots")
        self._pool_of_group = [context.pools.index(manager.block_pool) for manager in context.managers]
        # A manager that cannot use a prefix written in the same step asks for more than there is
        # (``MambaManager.get_num_blocks_to_allocate``).
        self._sentinels = [manager.block_pool.num_gpu_blocks + 1 for manager in context.managers]
        self._takes_prefill_end = [takes(m.get_num_blocks_to_allocate, "prefill_end") for m in context.managers]
        self._armed: Any = None

    def install(self) -> None:
        """Put the arming hook in place."""
        lookup = self._context.scheduler._get_local_prefix_cache_hit

        def armed_lookup(request: Any, *args: Any, **kwargs: Any) -> Any:
            hit = lookup(request, *args, **kwargs)
            try:
                self._armed = request
                self._manager.allocate_slots = self._one_shot
            except BaseException as error:
                self._context.failed("_get_local_prefix_cache_hit", error)
            return hit

        self._context.replace(self._context.scheduler, "_get_local_prefix_cache_hit", armed_lookup)

    def disarm(self) -> None:
        """Take the one-shot away; called at the end of each `schedule()`."""
        if self._armed is not None:
            self._armed = None
            # Not through `__dict__`: CPython 3.11 to 3.13 would give the manager a real dict for good,
            # and every attribute that the hot `allocate_slots` reads would be slower from then on.
            if self._foreign:
                self._manager.allocate_slots = self._allocate
            else:
                del self._manager.allocate_slots

    def _one_shot(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        expected = self._armed
        try:
            self.disarm()
        except BaseException as error:
            self._context.failed("allocate_slots", error)
        if request is not expected:
            return self._allocate(request, *args, **kwargs)
        estimates: list[GroupEstimate] = []
        free: list[int] = []
        hits: list[tuple[int, int]] = []
        try:
            free = [pool.free_block_queue.num_free_blocks for pool in self._context.pools]
            entry = self._recorder.entry(request.request_id)
            if free[0] >= entry.refused_blocks:
                estimates = self._stock_estimate(request, *args, **kwargs)
            # Only where the request is about to get in: one that waits comes by in every step.
            if estimates and sum(new for new, _ in estimates) <= free[0]:
                hits = self._group_hits(request, kwargs.get("num_new_computed_tokens", 0))
        except BaseException as error:
            self._context.failed("allocate_slots", error)
        allocated = self._allocate(request, *args, **kwargs)
        try:
            if estimates:
                self._record(request, estimates, free, admitted=allocated is not None)
            if hits and allocated is not None:
                self._record_hits(request, hits, kwargs.get("num_new_computed_tokens", 0))
        except BaseException as error:
            self._context.failed("allocate_slots", error)
        return allocated

    def _group_hits(self, request: Any, hit_tokens: int) -> list[tuple[int, int]]:
        """Ask each group of a hybrid how far it alone reaches: (group, tokens).

        vLLM notes the longest hit of any group where it is longer than the common one
        (``Request.shared_prefix_boundary``); no group is asked beyond it, so that a long prompt
        that nobody has costs nothing.
        """
        coordinator = self._manager.coordinator
        if not hasattr(coordinator, "find_longest_cache_hit_per_group"):
            return []
        longest = max(request.shared_prefix_boundary, hit_tokens)
        if longest == 0:
            return []
        if longest == hit_tokens:
            return [(group, hit_tokens) for group in range(len(self._context.managers))]
        _, lengths = coordinator.find_longest_cache_hit_per_group(request.block_hashes, longest)
        return list(enumerate(lengths))

    def _record_hits(self, request: Any, hits: list[tuple[int, int]], hit_tokens: int) -> None:
        recorder, entry = self._recorder, self._recorder.entry(request.request_id)
        longest = max(length for _, length in hits)
        for group, length in hits:
            cells = (recorder.step, entry.key, entry.attempt + 1, group, length, longest, hit_tokens)
            recorder.row("prefix", *cells)

    def _stock_estimate(
        self,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        **others: Any,
    ) -> list[GroupEstimate]:
        """Compute per group what `allocate_slots` is about to compute in sum.

        The calls are those of ``KVCacheCoordinator.get_num_blocks_to_allocate`` with the
        admission cap, with which no manager writes anything that stock's own call does not.
        """
        manager, coordinator = self._manager, self._manager.coordinator
        local = request.num_computed_tokens + num_new_computed_tokens
        total = min(local + num_external_computed_tokens, manager.max_model_len)
        tokens = total + num_new_tokens + num_lookahead_tokens
        if others.get("full_sequence_must_fit"):
            tokens = request.num_tokens
        tokens = min(tokens, manager.max_model_len)
        dense = coordinator.retention_interval != 0
        prefill_end = 0 if dense else max(request.num_prompt_tokens, request.num_tokens - 1)
        hits = (new_computed_blocks or manager.empty_kv_cache_blocks).blocks
        estimates = []
        for group, single in enumerate(self._context.managers):
            lengths: tuple[Any, ...] = (tokens, hits[group], total, local, tokens)
            if type(single).__name__ == "CrossAttentionManager":
                encoder_tokens = others.get("num_encoder_tokens", 0)
                lengths = (encoder_tokens, [], 0, 0, encoder_tokens)
            end = {"prefill_end": prefill_end} if self._takes_prefill_end[group] else {}
            new = single.get_num_blocks_to_allocate(request.request_id, *lengths, apply_admission_cap=True, **end)
            skipped = single.get_num_skipped_tokens(total) // single.block_size
            held = sum(block.ref_cnt > 0 and not block.is_null for block in hits[group][skipped:])
            estimates.append((new, held))
        return estimates

    def _record(self, request: Any, estimates: list[GroupEstimate], free: list[int], *, admitted: bool) -> None:
        entry = self._recorder.entry(request.request_id)
        if admitted:
            self._record_estimates(entry, EstimateVerdict.ADMITTED, estimates, free)
            return
        deferred = any(new == most for (new, _), most in zip(estimates, self._sentinels, strict=True))
        # The head of the queue comes by in every step; until there is more free there is nothing new to say.
        entry.refused_blocks = 0 if deferred else sum(new for new, _ in estimates)
        reason = REASON_SAME_STEP if deferred else REASON_BLOCKS
        if reason in entry.refusals:
            return
        entry.refusals.add(reason)
        attempt, key = entry.attempt + 1, self._recorder.reason(reason)
        request_row(self._recorder, RequestKind.REFUSE, request, attempt=attempt, reason=key)
        verdict = EstimateVerdict.DEFERRED if deferred else EstimateVerdict.REFUSED
        self._record_estimates(entry, verdict, estimates, free)

    def _record_estimates(
        self, entry: RequestEntry, verdict: EstimateVerdict, estimates: list[GroupEstimate], free: list[int]
    ) -> None:
        for group, (new, held) in enumerate(estimates):
            pool = self._pool_of_group[group]
            self._recorder.row(
                "estimate",
                self._recorder.step,
                entry.key,
                entry.attempt + 1,
                EstimateSource.STOCK,
                EstimateScope.PREFILL,
                verdict,
                pool,
                group,
                NOT_APPLICABLE if new == self._sentinels[group] else new,
                held,
                free[pool],
            )
