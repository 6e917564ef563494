"""What the recorder must know of requests that arrived before tracing was switched on."""

from __future__ import annotations

from typing import Any

from vstate.tracer.request_hooks import parent_id
from vstate.tracer.wrapping import HookContext


def enter_live_requests(context: HookContext) -> None:
    """Give each request of the scheduler its key, and say which have a past that was not seen.

    An ``attempt`` of 0 says that nothing was lost yet, so reconcile judges the request. One that was
    admitted before has its real number instead, and is judged by no rule (`unknown_requests.sql`).
    """
    for request_id, request in context.scheduler.requests.items():
        external = getattr(request, "vstate_external_id", None) or ""
        entry = context.recorder.new_request(request_id, external, parent_id(request_id, external))
        entry.preempted = request.status.name == "PREEMPTED"
        entry.attempt = request.num_preemptions + (not entry.preempted and _is_admitted(context, request))


def _is_admitted(context: HookContext, request: Any) -> bool:
    """Whether a request has been let in since its last preemption.

    A request without a block in any group can still be one: of the two, status and blocks, either tells.
    """
    holds = any(manager.req_to_blocks.get(request.request_id) for manager in context.managers)
    return holds or request.status.name == "RUNNING"
