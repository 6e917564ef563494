"""The command `vstate`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from vstate import __version__
from vstate.cli.bench import bench_app
from vstate.cli.candidate import candidate_app
from vstate.cli.demo import demo
from vstate.cli.doctor import doctor
from vstate.cli.inventory import inventory
from vstate.cli.reconcile import reconcile
from vstate.cli.trace import trace_app
from vstate.cli.workload import workload_app
from vstate.schemas.errors import VstateError

app = typer.Typer(
    name="vstate",
    help="Account for every kind of state a vLLM engine keeps.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(trace_app, name="trace")
app.add_typer(workload_app, name="workload")
app.add_typer(bench_app, name="bench")
app.add_typer(candidate_app, name="candidate")
app.command("demo")(demo)
app.command("inventory")(inventory)
app.command("reconcile")(reconcile)
app.command("doctor")(doctor)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Account for every kind of state a vLLM engine keeps."""


def main() -> None:
    """Run the command; a user's error is one line on standard error and exit code 2."""
    try:
        app()
    except VstateError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except PermissionError as error:
        typer.echo(f"error: no permission for {error.filename}; give this user access or choose another path", err=True)
        sys.exit(VstateError.exit_code)


if __name__ == "__main__":
    main()
