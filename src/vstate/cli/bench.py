"""`vstate bench`: figures that anyone can make again."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from vstate.schemas.errors import require_vllm

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
