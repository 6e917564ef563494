"""Who calls a pool: request and group, read from the calling frame.

vLLM's pool is not told for whom it allocates. Wrapping the callers would cost a call per
running request and step, since they are called whether they need a block or not. The
frame of a caller is read only when a block really changes hands (0.4 us), so the cost
follows events.
"""

from __future__ import annotations

from types import FrameType

from vstate.schemas.vocabulary import NOT_APPLICABLE, Holder
from vstate.tracer.recorder import Recorder

_SEARCH_DEPTH = 6
"""Frames searched: other plugins may have wrapped the same method."""

_MANAGER_FUNCTIONS = frozenset(
    {
        "add_local_computed_blocks",
        "allocate_new_blocks",
        "allocate_external_computed_blocks",
        "_claim_ring_block",
        "free",
        "_remove_blocks_in_range",
        "remove_skipped_blocks",
    }
)
"""Methods of `SingleTypeKVCacheManager` and its subclasses that change blocks of one request."""

_ENGINE_HOLDERS = {
    "_free_cow_retained_blocks": int(Holder.COPY_ON_WRITE),
    "_drain_deferred_frees": int(Holder.DEFERRED_FREE),
}
"""Methods of the scheduler that release what it held itself."""

_UNKNOWN = int(Holder.UNKNOWN)


def holder_of(recorder: Recorder, frame: FrameType | None) -> tuple[int, int]:
    """Return (request key or `Holder` code, group) on whose behalf ``frame`` was called."""
    for _ in range(_SEARCH_DEPTH):
        if frame is None:
            break
        function = frame.f_code.co_name
        if function in _MANAGER_FUNCTIONS:
            names = frame.f_locals
            request_id = names.get("request_id")
            group = getattr(names.get("self"), "kv_cache_group_id", None)
            if request_id is not None and group is not None:
                return recorder.entry(request_id).key, group
        elif function in _ENGINE_HOLDERS:
            return _ENGINE_HOLDERS[function], NOT_APPLICABLE
        frame = frame.f_back
    return _UNKNOWN, NOT_APPLICABLE
