"""`vstate doctor`: does the installed vLLM fit?"""

from __future__ import annotations

import importlib.util
import json
from typing import Annotated

import typer

from vstate.schemas.errors import VstateError


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Check every place in vLLM that vstate hooks or reads, by name and parameters."""
    if importlib.util.find_spec("vllm") is None:
        raise VstateError("vLLM is not installed; install it with: pip install 'vstate[cpu]' (or [cuda])")
    import vllm

    from vstate.tracer.anchors import check_anchors

    states = check_anchors()
    if as_json:
        typer.echo(json.dumps({"vllm": vllm.__version__, "anchors": [s.model_dump() for s in states]}, indent=2))
    else:
        for state in states:
            wrapped = f" (defined by {state.wrapped_by})" if state.wrapped_by else ""
            typer.echo(f"{'ok  ' if state.fits else 'MISS'} {state.name} {'' if state.fits else state.found}{wrapped}")
        bad = sum(not state.fits for state in states)
        verdict = "fits" if not bad else f"does not fit: {bad} of {len(states)} anchors miss; tracing stays off"
        typer.echo(f"vLLM {vllm.__version__} {verdict}")
    if not all(state.fits for state in states):
        raise typer.Exit(1)
