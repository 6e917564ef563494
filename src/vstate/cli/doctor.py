"""`vstate doctor`: does the installed vLLM fit, are its books recorded, and what would a start hold?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from vstate.schemas.errors import VstateError, require_vllm

if TYPE_CHECKING:
    from rich.console import RenderableType

SIZE = re.compile(r"(?P<count>\d+(?:\.\d+)?)\s*(?P<unit>[KMGT]i?)?B?", re.IGNORECASE)
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def doctor(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="-- [SERVE ARGUMENTS]", help="With --config: as for vllm serve.")
    ] = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Drive vLLM's scheduler through a script and compare replay with its books.")
    ] = False,
    config: Annotated[
        bool, typer.Option("--config", help="Say what a start with these arguments would hold, without weights.")
    ] = False,
    kv_cache_bytes: Annotated[
        str | None,
        typer.Option("--kv-cache-bytes", metavar="SIZE", help="With --config: memory of the pool, as in 16GiB."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check the installed vLLM, which may be a fork with any version string.

    Without options: does it have every name that vstate hooks or reads, with
    its parameters, and who else has wrapped or replaced some of them?

    --probe also allocates, shares, copies, evicts, preempts and frees on
    vLLM's own scheduler and pool, with the hooks in place, and compares
    replay with the engine's books after each call. No model runs.

    --config says what a server started with these arguments would have: its
    blocks and tokens, what a request takes, and whether the state of
    max_num_seqs requests fits. No weights are loaded.

        vstate doctor --config -- MODEL --max-num-seqs 256 [OPTIONS of vllm serve]

    Exit codes: 0 all is well, 1 something does not fit, 2 wrong input.
    """
    require_vllm()
    given = list(arguments or ())
    if not config and (given or kv_cache_bytes):
        raise VstateError("arguments of vllm serve and --kv-cache-bytes are for --config; add it")
    if config and probe:
        raise VstateError("--probe and --config are two questions; ask them one after the other")
    shown: dict[str, object]
    if config:
        from vstate.doctor.plan import make_plan
        from vstate.doctor.render import render_plan

        plan = make_plan(given, None if kv_cache_bytes is None else parse_size(kv_cache_bytes))
        shown, well = {"plan": plan.model_dump(mode="json")}, plan.fits
        lines = render_plan(plan)
    else:
        shown, lines, well = _look(probe)
    if as_json:
        typer.echo(json.dumps(shown, indent=2))
    else:
        _print(lines)
    if not well:
        raise typer.Exit(1)


def _look(probe: bool) -> tuple[dict[str, object], Iterator[RenderableType], bool]:
    """Check the names and, where they fit and it is asked for, the books."""
    from itertools import chain

    from vstate.doctor.fit import check_fit
    from vstate.doctor.probe import run_probe
    from vstate.doctor.render import render_fit, render_probe

    report = run_probe() if probe else None
    fit = (report.fit if report else None) or check_fit()
    shown: dict[str, object] = fit.model_dump(mode="json")
    if report is None:
        return shown, render_fit(fit), fit.fits
    shown["probe"] = report.model_dump(mode="json", exclude={"fit"}) | {
        "faults": report.faults,
        "verdict": report.verdict,
    }
    return shown, chain(render_fit(fit), render_probe(report)), fit.fits and not report.faults


def _print(lines: Iterator[RenderableType]) -> None:
    """Print tables at the width of the terminal, and lines of text whole, so that they can be searched."""
    from rich.console import Console

    console = Console(highlight=False)
    for line in lines:
        console.print(line, soft_wrap=isinstance(line, str) or not hasattr(line, "columns"))


def parse_size(text: str) -> int:
    """Read a number of bytes with an optional unit, as in ``16GiB`` or ``2e9`` written out.

    Raises:
        VstateError: It is none.
    """
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise VstateError(f"{text} is no size; give bytes or a unit, as in 16GiB")
    return int(float(match["count"]) * UNITS[(match["unit"] or "").lower()])
