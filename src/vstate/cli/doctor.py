"""`vstate doctor`: does the installed vLLM fit?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from vstate.schemas.errors import require_vllm


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Check every place in vLLM that vstate hooks or reads, by name and parameters."""
    require_vllm()
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
