"""`vstate doctor --probe`: does replay of what the hooks record equal the books of the installed vLLM?"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel

from vstate.doctor.child import ChildFailure, ask_child
from vstate.doctor.fit import Fit

PROBE_MODULE = "vstate.doctor.probe_run"
PROBE_SECONDS = 300.0
"""Time after which a probe is given up; it takes ten to twenty seconds, nearly all of it vLLM's import."""


class OperationState(StrEnum):
    """What was found about one operation."""

    AGREES = "agrees"
    DIFFERS = "differs"
    DID_NOT_HAPPEN = "did not happen"
    FAILED = "failed"
    NOT_REACHED = "not reached"
    ABSENT = "absent"


GOOD_STATES = frozenset({OperationState.AGREES, OperationState.ABSENT})
"""States that keep the exit code at 0; an engine may lack an optional method."""


class OperationReport(BaseModel):
    """One operation of the probe.

    Attributes:
        name: What was done.
        state: What was found.
        boundaries: Calls after which the books were compared.
        told: One line, where there is something to say.
    """

    name: str
    state: OperationState
    boundaries: int = 0
    told: str = ""


class ProbeRequest(BaseModel):
    """What the probe's process is asked; it takes no settings."""


class ProbeReport(BaseModel):
    """What the probe found.

    Attributes:
        fit: How the vLLM that was probed fits; None where not even that could be found out.
        operations: In the order in which they ran.
        lost_events: Events that the tracer could not record.
        warnings: What the tracer said meanwhile.
        wrapped: Hooked methods that something else has replaced on the engine's objects.
        failure: Why nothing could be probed; empty where it was.
        seconds: Time it took.
    """

    fit: Fit | None = None
    operations: tuple[OperationReport, ...] = ()
    lost_events: int = 0
    warnings: tuple[str, ...] = ()
    wrapped: tuple[str, ...] = ()
    failure: str = ""
    seconds: float = 0.0

    @property
    def faults(self) -> list[str]:
        """One line for each thing that is wrong, the first one first."""
        if self.failure:
            return [self.failure]
        faults = [
            f"{operation.name}: {operation.told or operation.state.value}"
            for operation in self.operations
            if operation.state not in GOOD_STATES and operation.state is not OperationState.NOT_REACHED
        ]
        if self.lost_events:
            faults.append("; ".join((f"events that the tracer could not record: {self.lost_events}", *self.warnings)))
        return faults

    @property
    def verdict(self) -> str:
        """One line: that all is well, or the first thing that is wrong."""
        if not self.faults:
            compared = sum(operation.boundaries for operation in self.operations)
            return f"books agree at all {compared} boundaries, in {self.seconds:.0f} s"
        more = len(self.faults) - 1
        return f"{self.faults[0]}{f' (and {more} more, see --json)' if more else ''}"


def run_probe() -> ProbeReport:
    """Probe the installed vLLM in a process of its own."""
    environment = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    try:
        return ask_child(PROBE_MODULE, ProbeRequest(), ProbeReport, environment, PROBE_SECONDS)
    except ChildFailure as failure:
        return ProbeReport(failure=f"the probe's process did not come back: {failure}")
