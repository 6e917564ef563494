"""The process that looks at vLLM's names. Started by `fit.py` as ``python -m vstate.doctor.fit_run``."""

from __future__ import annotations

from vstate.doctor.child import answer_parent
from vstate.doctor.fit import Fit, FitRequest
from vstate.tracer.anchors import check_anchors, misfits, replaced_classes
from vstate.tracer.session import vllm_version


def fit(_: FitRequest) -> Fit:
    """Compare all anchors with vLLM as it is once the plugins of others have had their turn."""
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    states = check_anchors()
    return Fit(vllm=vllm_version(), anchors=states, misfits=tuple(misfits(states)), replaced=replaced_classes())


if __name__ == "__main__":
    answer_parent(FitRequest, fit)
