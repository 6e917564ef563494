"""The virtual clock of an engine without a forward.

Its engine moves it by what a step would have taken; hooks write what it shows beside the real time. In
every other engine it stands at "does not apply".
"""

from __future__ import annotations

from dataclasses import dataclass

from vstate.schemas.vocabulary import NOT_APPLICABLE

NS_PER_SECOND = 1_000_000_000


@dataclass
class ModelledClock:
    """What time it is in a modelled engine.

    Attributes:
        now_ns: Nanoseconds since the engine's start; -1 where no engine of this process is modelled.
    """

    now_ns: int = NOT_APPLICABLE

    def start(self) -> None:
        """Begin at zero."""
        self.now_ns = 0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ns += round(seconds * NS_PER_SECOND)

    def wait_until(self, seconds: float) -> None:
        """Let time pass up to a moment; one that is over changes nothing."""
        self.now_ns = max(self.now_ns, round(seconds * NS_PER_SECOND))

    @property
    def seconds(self) -> float:
        """Seconds since the engine's start."""
        return self.now_ns / NS_PER_SECOND


CLOCK = ModelledClock()
"""The clock of this process; a process runs one modelled engine at most."""
