"""`vstate workload`: make workload files from published traces, and say what a workload holds."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vstate.schemas.errors import VstateError

if TYPE_CHECKING:
    from vstate.tracer.workloads.importers.rows import Tally
    from vstate.tracer.workloads.summary import Distribution, WorkloadSummary

KINDS = "bursts, long-context, media-mix, multi-turn, poisson, shared-prefixes."
MOST = 1e9
"""Largest rate, factor or mean time that a call can name."""

workload_app = typer.Typer(help="Workload files: import, generate, show.", no_args_is_help=True)


@workload_app.command("import")
def import_trace(
    format_name: Annotated[
        str, typer.Argument(metavar="FORMAT", help="azure, bailian, claude-code, lengths, mooncake or servegen.")
    ],
    trace: Annotated[Path, typer.Argument(metavar="FILE", help="The trace; .gz is read as such.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Workload to write (JSONL); .gz compresses it.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Requests wanted; all without it.")] = None,
    loop: Annotated[bool, typer.Option("--loop", help="Repeat the file until --limit is reached.")] = False,
    speed: Annotated[float, typer.Option(help="Divide all times by this.")] = 1.0,
    users: Annotated[int | None, typer.Option(min=1, help="claude-code: users who share the sessions [1].")] = None,
    max_think: Annotated[float | None, typer.Option(min=0, help="claude-code: longest think time in s [60].")] = None,
    rate: Annotated[float | None, typer.Option(help="lengths: requests per second of Poisson arrivals.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="lengths: seed of the arrivals [0].")] = None,
) -> None:
    """Turn a published request trace into a workload."""
    from vstate.tracer.workloads.importers import FORMATS
    from vstate.tracer.workloads.importers.rows import ImportOptions, Tally
    from vstate.tracer.workloads.writing import write_workload

    if format_name not in FORMATS:
        raise VstateError(f"no trace format {format_name!r}; choose one of {', '.join(FORMATS)}")
    importer = FORMATS[format_name]
    if loop and limit is None:
        raise VstateError("--loop repeats the file until there are --limit requests; give --limit")
    special = {"users": users, "max_think_s": max_think, "rate": rate, "seed": seed}
    common: dict[str, Any] = {"limit": limit, "speed": speed}
    options = ImportOptions(loop=loop, **common, **_chosen(special, importer.OPTIONS, f"the format {format_name}"))
    _check_scale("--speed", speed)
    _check_scale("--rate", rate)

    tally = Tally()
    used = {name: getattr(options, name) for name in [*common, *sorted(importer.OPTIONS)]}
    command = _command(["import", format_name, trace.name, *(["--loop"] if loop else [])], used)
    written = write_workload(output, [f"made by: {command}", *importer.HEADER], importer.read(trace, options, tally))
    typer.echo(f"wrote {written} requests to {output}{_changes(tally)}", err=True)


@workload_app.command("generate")
def generate(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="One of: " + KINDS)],
    output: Annotated[Path, typer.Option("-o", "--output", help="Workload to write (JSONL); .gz compresses it.")],
    requests: Annotated[int, typer.Option(min=1, help="Requests in all.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all draws.")] = 0,
    rate: Annotated[float, typer.Option(help="Mean arrivals per second; of conversations in multi-turn.")] = 1.0,
    input_tokens: Annotated[int, typer.Option(min=1, help="Mean tokens of a request's own text.")] = 512,
    output_tokens: Annotated[int, typer.Option(min=1, help="Mean tokens of an answer.")] = 128,
    burst_factor: Annotated[float | None, typer.Option(help="bursts: times --rate that one has, above 1 [10].")] = None,
    burst_length: Annotated[float | None, typer.Option(help="bursts: mean length of one in s [1].")] = None,
    long_share: Annotated[
        float | None, typer.Option(min=0, max=1, help="long-context: share with a document [0.1].")
    ] = None,
    long_tokens: Annotated[int | None, typer.Option(min=1, help="long-context: longest document [65536].")] = None,
    prefixes: Annotated[int | None, typer.Option(min=1, help="shared-prefixes: how many there are [10].")] = None,
    prefix_tokens: Annotated[int | None, typer.Option(min=1, help="shared-prefixes: tokens of each [1024].")] = None,
    turns: Annotated[int | None, typer.Option(min=1, help="multi-turn: requests of a conversation [5].")] = None,
    think: Annotated[float | None, typer.Option(min=0, max=MOST, help="multi-turn: mean think time in s [10].")] = None,
    kinds: Annotated[str | None, typer.Option(help="media-mix: kinds of media [image,audio,video].")] = None,
    items: Annotated[int | None, typer.Option(min=1, help="media-mix: different items of a kind [20].")] = None,
) -> None:
    """Make a synthetic workload of stated arrivals, lengths and sharing."""
    from vstate.tracer.workloads.generators import GENERATORS
    from vstate.tracer.workloads.generators.draws import GeneratorOptions
    from vstate.tracer.workloads.writing import write_workload

    if kind not in GENERATORS:
        raise VstateError(f"no kind of workload {kind!r}; choose one of {', '.join(sorted(GENERATORS))}")
    generator = GENERATORS[kind]
    _check_scale("--rate", rate)
    _check_scale("--burst-length", burst_length)
    if burst_factor is not None and not 1 < burst_factor <= MOST:
        raise VstateError(f"--burst-factor is {burst_factor}; give a number above 1")
    special = {
        "burst_factor": burst_factor,
        "burst_length_s": burst_length,
        "long_share": long_share,
        "long_tokens": long_tokens,
        "prefixes": prefixes,
        "prefix_tokens": prefix_tokens,
        "turns": turns,
        "think_s": think,
        "kinds": None if kinds is None else _media_kinds(kinds),
        "items": items,
    }
    common: dict[str, Any] = {
        "requests": requests,
        "seed": seed,
        "rate": rate,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
    }
    options = GeneratorOptions(**common, **_chosen(special, generator.OPTIONS, kind))
    used = {name: getattr(options, name) for name in [*common, *sorted(generator.OPTIONS)]}
    header = [f"made by: {_command(['generate', kind], used)}", *generator.HEADER]
    written = write_workload(output, header, generator.make(options))
    typer.echo(f"wrote {written} requests to {output}", err=True)


@workload_app.command("show")
def show(
    workload: Annotated[Path, typer.Argument(metavar="FILE", help="Workload (JSONL); .gz is read as such.")],
    block_tokens: Annotated[int, typer.Option(min=1, help="Tokens that a block in a length means.")] = 128,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say how large a workload is, how it arrives and how much of it could be reused."""
    from vstate.tracer.workloads.summary import summarize

    summary = summarize(workload, block_tokens)
    typer.echo(json.dumps(asdict(summary), indent=2) if as_json else "\n".join(_lines(summary)))


def _chosen(special: dict[str, Any], allowed: frozenset[str], kind: str) -> dict[str, Any]:
    """Return the options that were given, of those that go with some kinds only.

    Raises:
        VstateError: One of them does not go with ``kind``.
    """
    chosen = {name: value for name, value in special.items() if value is not None}
    for name in chosen:
        if name not in allowed:
            raise VstateError(f"--{_option(name)} does not go with {kind}; leave it out")
    return chosen


def _command(words: list[str], options: dict[str, Any]) -> str:
    """Return the call that makes the same workload again, with its defaults spelled out."""
    for name, value in options.items():
        if value is not None:
            words = [*words, f"--{_option(name)}", ",".join(value) if isinstance(value, tuple) else str(value)]
    return shlex.join(["vstate", "workload", *words])


def _media_kinds(text: str) -> tuple[str, ...]:
    from vstate.schemas.workload import MEDIA_SIZES

    kinds = tuple(text.split(","))
    for kind in kinds:
        if kind not in MEDIA_SIZES:
            raise VstateError(f"no kind of media {kind!r}; choose among {', '.join(MEDIA_SIZES)}")
    return kinds


def _option(name: str) -> str:
    return name.removesuffix("_s").replace("_", "-")


def _check_scale(option: str, value: float | None) -> None:
    """Check a number that others are multiplied with or divided by, so that no moment is out of range."""
    if value is not None and not 1 / MOST <= value <= MOST:
        raise VstateError(f"{option} is {value}; give a number above 0, from {1 / MOST:g} to {MOST:g}")


def _changes(tally: Tally) -> str:
    changes = []
    if tally.without_input:
        changes.append(f"rows of 0 input tokens left out: {tally.without_input}")
    if tally.without_output:
        changes.append(f"rows of 0 output tokens that ask for 1: {tally.without_output}")
    return "".join(f"; {change}" for change in changes)


def _lines(summary: WorkloadSummary) -> list[str]:
    aborts = f", {summary.aborts} of them aborts" if summary.aborts else ""
    media = ", ".join(f"{kind} {count}" for kind, count in summary.media_items.items()) or "none"
    return [
        f"requests        {summary.requests} ({summary.lines} lines{aborts})",
        f"input tokens    {_spread(summary.input_tokens)}",
        f"output tokens   {_spread(summary.output_tokens)}",
        f"media items     {media}",
        f"arrivals        {_arrivals(summary)}",
        f"closed loop     {summary.closed_loop_share:.1%} of the requests wait for another one",
        f"reusable        {summary.reusable_share:.1%} of the input tokens, with a cache that forgets nothing",
    ]


def _spread(tokens: Distribution) -> str:
    percentiles = f"p50 {tokens.p50}, p95 {tokens.p95}, p99 {tokens.p99}, max {tokens.max}"
    return f"{percentiles}, mean {tokens.mean:.1f}, total {tokens.total}"


def _arrivals(summary: WorkloadSummary) -> str:
    if summary.span_s is None or summary.mean_rate is None:
        return "no two at moments apart"
    dispersion = "" if summary.dispersion is None else f", dispersion of 10 s counts {summary.dispersion:.2f}"
    return f"{summary.span_s:.1f} s, {summary.mean_rate:.3f} a second{dispersion}"
