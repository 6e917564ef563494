"""`vstate bench`: figures that anyone can make again."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from vstate.schemas.errors import require_vllm
from vstate.schemas.vocabulary import MIB
from vstate.tracer.engines.job import EngineMessage

bench_app = typer.Typer(help="Measure vstate's own cost.", no_args_is_help=True)


@bench_app.callback()
def benches() -> None:
    """Measure vstate's own cost."""


@bench_app.command("overhead")
def overhead(
    running: Annotated[int, typer.Option(min=1, help="Requests that decode together.")] = 256,
    pairs: Annotated[int, typer.Option(min=2, help="Turns of each engine.")] = 21,
    steps: Annotated[int, typer.Option(min=10, help="Steps of a turn.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Cost of tracing on a scheduler-only loop: stock and traced engines, interleaved, with an A/A control."""
    require_vllm()
    from vstate.bench.overhead import machine_line, measure_overhead

    rows = measure_overhead(running, pairs, steps, lambda text: typer.echo(text, err=True))
    if as_json:
        typer.echo(json.dumps({"machine": machine_line(), "rows": [asdict(row) for row in rows]}, indent=2))
        return
    typer.echo(f"machine: {machine_line()}")
    typer.echo("time with tracing over time without; above 1 is slower; quartiles in brackets")
    for row in rows:
        low, high = row.throughput_spread
        noise_low, noise_high = row.aa_throughput_spread
        typer.echo(
            f"{row.running} running, {row.lengths} lengths, stock step {row.stock_step_ms:.2f} ms, {row.pairs} pairs: "
            f"throughput {row.throughput_ratio:.4f} [{low:.4f}..{high:.4f}], p95 {row.p95_ratio:.4f}, "
            f"p99.9 {row.p999_ratio:.4f}, longest {row.longest_stall_ms:.1f} ms; "
            f"A/A throughput {row.aa_throughput_ratio:.4f} [{noise_low:.4f}..{noise_high:.4f}], "
            f"p95 {row.aa_p95_ratio:.4f}"
        )


@bench_app.command("scheduler")
def scheduler(
    model: Annotated[str, typer.Option(help="tiny/NAME or full/NAME.")] = "full/lfm2.5-8b-a1b",
    workload: Annotated[str, typer.Option(help="smoke, or a JSONL file.")] = "smoke",
    device: Annotated[str, typer.Option(help="Device whose memory and speed are taken (h100, h200, b200).")] = "",
    tensor_parallel: Annotated[int, typer.Option(min=0, help="Ranks that share the model; 0 for its own.")] = 0,
    skip_too_long: Annotated[bool, typer.Option(help="Leave out requests that do not fit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Speed and memory of the scheduler engine with tracing on."""
    require_vllm()
    from vstate.bench.overhead import machine_line
    from vstate.bench.scheduler import in_scratch, measure_scheduler
    from vstate.tracer.engines.request import RunRequest, SchedulerOptions

    request = RunRequest(
        model=model,
        workload=workload,
        out=Path(),
        seed=0,
        settings={},
        own_process=False,
        engine="scheduler",
        skip_too_long=skip_too_long,
        scheduler=SchedulerOptions(device=device, tensor_parallel_size=tensor_parallel),
    )

    def told(message: EngineMessage) -> None:
        if message.requests:
            typer.echo(f"{model}: {message.ended} of {message.requests} requests", err=True)

    row, _ = measure_scheduler(in_scratch(request), told, keep=False)
    if as_json:
        typer.echo(json.dumps({"machine": machine_line(), "rows": [asdict(row)]}, indent=2))
        return
    typer.echo(f"machine: {machine_line()}")
    typer.echo(
        f"{row.model}, {row.workload}: {row.requests} requests and {row.steps} steps in {row.seconds} s: "
        f"{row.requests_per_second} requests/s, {row.steps_per_second} steps/s; peak {row.peak_bytes / MIB:.0f} MiB, "
        f"{row.growth_bytes / MIB:+.1f} MiB after the first quarter; {row.events} events, {row.lost_rows} lost, "
        f"{row.trace_bytes / MIB:.1f} MiB of trace; {row.modelled_seconds} s of modelled time"
    )


@bench_app.command("reconcile")
def reconcile(
    events: Annotated[
        list[int] | None, typer.Option(min=1000, help="Events of the run; may be repeated. Default: 10 million.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Replay and all rules on a run of any size, beside a plain DuckDB scan of the same files.

    The run is made up and steady: what is measured is the reader.
    """
    from vstate.bench.overhead import machine_line
    from vstate.bench.reconcile import measure_reconcile, rows_as_json

    rows = [measure_reconcile(count, lambda text: typer.echo(text, err=True)) for count in events or [10_000_000]]
    if as_json:
        typer.echo(json.dumps({"machine": machine_line(), "rows": rows_as_json(rows)}, indent=2))
        return
    typer.echo(f"machine: {machine_line()}")
    for row in rows:
        typer.echo(
            f"{row.events:,} events, {row.rules} rules, {row.verdict}: {row.catalogue_seconds:.1f} s, "
            f"{row.scan_ratio:.1f} times a scan ({row.scan_seconds:.2f} s), peak {row.peak_bytes / MIB:,.0f} MiB; "
            f"before it once {row.cache_seconds:.1f} s from streams to Parquet ({row.parquet_bytes / MIB:,.0f} MiB)"
        )


@bench_app.command("estimator")
def estimator(
    turns: Annotated[int, typer.Option(min=2, help="Turns that are timed.")] = 21,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time of the bound of one request, and of 10,000 at once."""
    from vstate.bench.estimator import measure_estimator
    from vstate.bench.overhead import machine_line

    rows = measure_estimator(turns)
    if as_json:
        typer.echo(json.dumps({"machine": machine_line(), "rows": [asdict(row) for row in rows]}, indent=2))
        return
    typer.echo(f"machine: {machine_line()}")
    typer.echo("microseconds of the processor, median and quartiles")
    for row in rows:
        (low, high), (many_low, many_high) = row.request_us_quartiles, row.many_us_quartiles
        typer.echo(
            f"{row.engine} ({row.groups} groups, {row.rules} different): one request {row.request_us:.1f} "
            f"[{low:.1f}..{high:.1f}], {row.many:,} at once {row.many_us:,.0f} [{many_low:,.0f}..{many_high:,.0f}]"
        )
