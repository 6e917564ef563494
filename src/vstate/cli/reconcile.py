"""`vstate reconcile`: compare what was estimated with what was held, and check the books."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vstate.schemas.errors import MissingExtraError

if TYPE_CHECKING:
    from vstate.schemas.summary import Summary


class FailOn(StrEnum):
    """From which severity of findings on the command fails."""

    NEVER = "never"
    UNDERCOUNT = "undercount"
    ILLEGAL = "illegal"
    ANY = "any"


FAILING_SEVERITIES: dict[FailOn, frozenset[str]] = {
    FailOn.NEVER: frozenset(),
    FailOn.ILLEGAL: frozenset({"illegal"}),
    FailOn.UNDERCOUNT: frozenset({"illegal", "undercount"}),
    FailOn.ANY: frozenset({"illegal", "undercount", "info"}),
}


def reconcile(
    run: Annotated[Path, typer.Argument(help="Folder of a recorded run.")],
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Least severe finding that gives exit code 1.")
    ] = FailOn.UNDERCOUNT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON on standard output.")] = False,
) -> None:
    """Compare estimates with what requests held, and replay the engine's books."""
    try:
        import duckdb  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError("duckdb", "analyze") from error

    summary = _with_progress(run)
    if as_json:
        from vstate.reconcile.job import summary_text

        sys.stdout.write(summary_text(summary))
    else:
        from rich.console import Console

        from vstate.reconcile.table import render_summary

        Console().print(render_summary(summary))
    if any(finding.severity in FAILING_SEVERITIES[fail_on] for finding in summary.findings):
        raise typer.Exit(1)


def _with_progress(run: Path) -> Summary:
    """Reconcile with a progress bar on standard error, which only a terminal shows."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from vstate.reconcile.job import reconcile_run

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("reconciling", total=None)

        def show(stage: str, done: int, total: int) -> None:
            bars.update(task, description=stage, completed=done, total=total)

        return reconcile_run(run, show)
