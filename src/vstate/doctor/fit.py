"""`vstate doctor`: does the installed vLLM have every name that vstate hooks or reads?"""

from __future__ import annotations

from pydantic import BaseModel

from vstate.doctor.child import ChildFailure, ask_child
from vstate.schemas.manifests import AnchorState

FIT_MODULE = "vstate.doctor.fit_run"
FIT_SECONDS = 300.0
"""Time after which vLLM's import is given up; it takes about ten seconds."""


class FitRequest(BaseModel):
    """What the process is asked that looks at vLLM; it takes no settings."""


class Fit(BaseModel):
    """How the installed vLLM fits.

    Attributes:
        vllm: Its version string, whatever that says.
        anchors: Every name that is hooked or read.
        misfits: One line for each that does not fit.
        replaced: Classes of vLLM in whose place another one is used.
        failure: Why nothing could be looked at; empty where it was.
    """

    vllm: str = ""
    anchors: tuple[AnchorState, ...] = ()
    misfits: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    failure: str = ""

    @property
    def fits(self) -> bool:
        """Whether tracing can be switched on."""
        return not self.failure and not self.misfits


def check_fit() -> Fit:
    """Look at the installed vLLM in a process of its own, with the plugins of others loaded."""
    try:
        return ask_child(FIT_MODULE, FitRequest(), Fit, {}, FIT_SECONDS)
    except ChildFailure as failure:
        return Fit(failure=str(failure))
