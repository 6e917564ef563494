"""What `vstate doctor` prints for a person."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from vstate.doctor.fit import Fit
from vstate.doctor.plan import Plan
from vstate.doctor.probe import ProbeReport

KIB = 1024


def render_fit(fit: Fit) -> Iterator[RenderableType]:
    """Show the anchors per class, and by name those that do not fit or that somebody else has wrapped."""
    if fit.failure:
        yield Text(f"vLLM does not fit: it cannot be looked at: {fit.failure}")
        return
    table = Table("class", "names", "fit", title=f"vLLM {fit.vllm}: what vstate hooks or reads", title_justify="left")
    states = sorted(fit.anchors, key=lambda state: state.name.rpartition(".")[0])
    for owner, members in groupby(states, key=lambda state: state.name.rpartition(".")[0]):
        found = list(members)
        table.add_row(owner, str(len(found)), str(sum(state.fits for state in found)))
    yield table
    for misfit in fit.misfits:
        yield Text(f"MISS {misfit}")
    for state in fit.anchors:
        if state.wrapped_by and state.fits:
            yield Text(f"wrapped: {state.name} by {state.wrapped_by}; tracing chains to it")
    for replaced in fit.replaced:
        yield Text(f"replaced: {replaced}")
    missing = f"{len(fit.misfits)} of {len(fit.anchors)} names do not fit; tracing stays off, serving is not touched"
    yield Text(f"vLLM {fit.vllm} {'fits' if fit.fits else f'does not fit: {missing}'}")


def render_probe(report: ProbeReport) -> Iterator[RenderableType]:
    """Show what the books said after each operation."""
    if report.operations:
        table = Table("operation", "compared", "books", title="probe", title_justify="left")
        for operation in report.operations:
            table.add_row(operation.name, str(operation.boundaries), operation.state.value)
        yield table
    for wrapped in report.wrapped:
        yield Text(f"wrapped: {wrapped}; tracing chains to it")
    yield Text(f"probe: {report.verdict}")


def render_plan(plan: Plan) -> Iterator[RenderableType]:
    """Show pools, groups and requests of a start that was not made."""
    if plan.pools:
        table = Table("pool", "blocks", "for requests", "bytes a block", "bytes", title=f"{plan.model}: pools")
        table.title_justify = "left"
        for pool in plan.pools:
            sizes = (_size(pool.block_bytes), _size(pool.total_bytes))
            table.add_row(str(pool.pool), f"{pool.num_blocks:,}", f"{pool.usable_blocks:,}", *sizes)
        yield table
        yield from _groups(plan)
    if plan.capacity_tokens is not None and plan.full_length_requests is not None:
        full = f"{plan.full_length_requests:.2f} requests of full length"
        yield Text(f"capacity by vLLM: {plan.capacity_tokens:,} tokens, {full}")
    for assumed in plan.assumed:
        yield Text(assumed)
    yield Text(plan.verdict)


def _groups(plan: Plan) -> Iterator[RenderableType]:
    minimum, longest = plan.minimum_request, plan.full_length_request
    assert minimum is not None
    assert longest is not None
    columns = ("group", "pool", "state", "layers", "block tokens", "1 token", f"{longest.tokens:,} tokens")
    table = Table(*columns, title="blocks that a request takes", title_justify="left")
    for group in plan.groups:
        cells = (group.group, group.pool, ", ".join(group.state_classes), group.layers, f"{group.block_tokens:,}")
        table.add_row(*map(str, cells), str(group.one_token_blocks), str(group.full_length_blocks))
    yield table
    yield Text(
        f"a request of 1 token takes {minimum.blocks} blocks ({_size(minimum.bytes)}), "
        f"one of {longest.tokens:,} tokens at most {longest.blocks} ({_size(longest.bytes)})"
    )


def _size(count: int) -> str:
    """Bytes in the largest binary unit that leaves at least 1 before the point."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= KIB and len(units) > 1:
        size /= KIB
        units.pop(0)
    return f"{size:.0f} B" if units[0] == "B" else f"{size:.2f} {units[0]}"
