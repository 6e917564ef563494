"""`vstate trace`: make a run, and look at one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from vstate.cli.switch import off, on
from vstate.schemas.errors import VstateError, require_vllm
from vstate.schemas.vocabulary import MIB
from vstate.tracer.engines.job import EngineMessage

trace_app = typer.Typer(help="Trace an engine, and look at traces.", no_args_is_help=True)
trace_app.command("on")(on)
trace_app.command("off")(off)


class EngineCorePlace(StrEnum):
    """Where the engine core runs."""

    IN_PROCESS = "in-process"
    OWN_PROCESS = "own-process"


class EngineKind(StrEnum):
    """Which engine runs."""

    FULL = "full"
    SCHEDULER = "scheduler"


class TooLong(StrEnum):
    """What becomes of requests that do not fit."""

    FAIL = "fail"
    SKIP = "skip"


def _rates(text: str) -> tuple[float, ...]:
    """Parse ``0.8,0.6``; empty for nothing.

    Raises:
        VstateError: It is not a list of chances.
    """
    try:
        rates = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        rates = (-1.0,)
    if any(not 0 <= rate <= 1 for rate in rates):
        raise VstateError(f"--acceptance {text!r} is no list of chances from 0 to 1, as in 0.8,0.6")
    return rates


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """Parse ``key=value`` pairs; a value that is JSON is taken as such."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key.isidentifier():
            raise VstateError(f"--set {pair!r} is not key=value")
        try:
            settings[key] = json.loads(text)
        except json.JSONDecodeError:
            settings[key] = text
    return settings


@trace_app.command("run")
def run(
    model: Annotated[str, typer.Option(help="tiny/NAME, full/NAME, a model folder, or a hub id.")],
    workload: Annotated[str, typer.Option(help="smoke, or a JSONL file.")] = "smoke",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; must not exist. Default: runs/MODEL-TIME.")
    ] = None,
    engine: Annotated[
        EngineKind,
        typer.Option(help="full is vLLM with a real forward; scheduler is all of it but the forward, at true size."),
    ] = EngineKind.FULL,
    engine_core: Annotated[
        EngineCorePlace,
        typer.Option(help="in-process repeats event by event; own-process is what a server does."),
    ] = EngineCorePlace.IN_PROCESS,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Argument of vLLM's EngineArgs; repeatable.")
    ] = None,
    spec: Annotated[
        str,
        typer.Option(metavar="HOW", help="Draft by mtp:N, ngram:N, draft:MODEL:N or eagle3:MODEL:N; none: not at all."),
    ] = "",
    too_long: Annotated[
        TooLong, typer.Option(help="What to do with requests that are longer than the model takes.")
    ] = TooLong.FAIL,
    device: Annotated[
        str, typer.Option(help="Scheduler engine: device whose memory and speed are taken (h100, h200, b200).")
    ] = "",
    tensor_parallel: Annotated[
        int, typer.Option(min=0, help="Scheduler engine: ranks that share the model; 0 for the model's own.")
    ] = 0,
    acceptance: Annotated[
        str,
        typer.Option(help="Scheduler engine: chance that a draft token is accepted, by position, as in 0.8,0.6."),
    ] = "",
    step_time: Annotated[
        Path | None, typer.Option(help="Scheduler engine: step-time model made by vstate trace fit.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of weights, prompts and hashing.")] = 0,
    max_disk: Annotated[int, typer.Option(min=0, metavar="MIB", help="Most the trace may take; 0 for no limit.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the run's manifest as JSON.")] = False,
) -> None:
    """Run a workload through an engine and trace it."""
    from vstate.tracer.engines.launch import run_engine
    from vstate.tracer.engines.request import ACCEPTANCE, RunRequest, SchedulerOptions

    if engine is EngineKind.SCHEDULER and engine_core is EngineCorePlace.OWN_PROCESS:
        raise VstateError("the scheduler engine runs in process; leave --engine-core away")
    options = SchedulerOptions(device, tensor_parallel, _rates(acceptance) or ACCEPTANCE, step_time)
    if engine is EngineKind.FULL and (device or tensor_parallel or acceptance or step_time):
        raise VstateError(
            "--device, --tensor-parallel, --acceptance and --step-time are for --engine scheduler; "
            "the full engine takes --set tensor_parallel_size=N"
        )
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder = out or Path("runs") / f"{model.replace('/', '-').strip('.-')}-{stamp}"
    request = RunRequest(
        model=model,
        workload=workload,
        out=folder,
        seed=seed,
        settings=parse_settings(setting or []),
        own_process=engine_core is EngineCorePlace.OWN_PROCESS,
        max_disk_bytes=max_disk * MIB,
        engine=engine.value,
        drafting=spec,
        skip_too_long=too_long is TooLong.SKIP,
        scheduler=options,
    )
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"{model}: starting vLLM", total=None)

        def told(message: EngineMessage) -> None:
            if message.kind == "running":
                text = f"{model}: {message.ended} of {message.requests or '?'} requests"
                progress.update(task, description=text, total=message.requests or None, completed=message.ended)

        manifest = run_engine(request, told)
    if as_json:
        typer.echo(manifest.model_dump_json(indent=2))
        return
    happened = ", ".join(
        f"{count} {name.replace('_', ' ')}" for name, count in (manifest.outcome or {}).items() if count
    )
    typer.echo(f"{folder}: {happened}")
    if manifest.skipped_requests:
        typer.echo(f"{folder}: {manifest.skipped_requests} requests were left out: longer than the model takes")


@trace_app.command("serve", context_settings={"ignore_unknown_options": True})
def serve(
    arguments: Annotated[list[str], typer.Argument(metavar="-- ARGUMENTS", help="What vllm serve takes.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; must not exist. Default: runs/serve-TIME.")
    ] = None,
    max_disk: Annotated[int, typer.Option(min=0, metavar="MIB", help="Most the trace may take; 0 for no limit.")] = 0,
) -> None:
    """Run vLLM's OpenAI server and trace it: vstate trace serve --out DIR -- MODEL --port 8000."""
    from vstate.tracer.engines.serve import serve as serve_traced

    folder = out or Path("runs") / f"serve-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}"
    code = serve_traced(folder, arguments, max_disk * MIB)
    kept = str(folder) if folder.exists() else "no run, tracing was never on"
    typer.echo(f"{kept}: the server ended with code {code}", err=True)
    if code not in (0, -2, -15):
        raise typer.Exit(1)


@trace_app.command("show")
def show(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    table: Annotated[str | None, typer.Option(help="Print rows of this table.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows of --table to print.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a run is: its manifest, its processes, groups and tables."""
    from vstate.cli.show import print_run, run_description, table_rows

    if table is not None:
        for row in table_rows(run, table, limit):
            typer.echo(json.dumps(row))
        return
    description = run_description(run)
    if as_json:
        typer.echo(json.dumps(description, indent=2, sort_keys=True))
    else:
        print_run(description, Console())


@trace_app.command("fit")
def fit(
    runs: Annotated[list[Path], typer.Argument(help="Runs of the engine full.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write; must not exist.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the model as JSON.")] = False,
) -> None:
    """Fit the scheduler engine's step-time model to runs with a real forward."""
    if out.exists():
        raise VstateError(f"{out} exists already; give another -o or remove it")
    require_vllm()
    from vstate.tracer.engines.step_fit import fit_runs

    found = fit_runs(runs)
    out.write_text(found.model.model_dump_json(indent=2) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(found.model.model_dump() | {"steps": found.steps, "median_error": found.median_error}))
        return
    model = found.model
    typer.echo(
        f"{out}: {model.fixed_seconds * 1000:.3f} ms a step, {model.seconds_per_flop:.3g} s a FLOP, "
        f"{model.seconds_per_byte:.3g} s a byte; from {found.steps} steps, of which the model misses half by more than "
        f"{found.median_error:.0%}"
    )
