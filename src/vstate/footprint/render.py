"""What `vstate inventory` prints for a person: one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from vstate.footprint.report import GroupLine, InventoryReport
from vstate.inventory.footprint import RequestFootprint
from vstate.inventory.state_inventory import LayerRow
from vstate.schemas.component import StateComponent
from vstate.schemas.vocabulary import StateClass

KIB = 1024


def render(report: InventoryReport) -> Iterator[RenderableType]:
    """Show groups, pools, requests, what they mean, and what was assumed."""
    settings = report.settings
    ranks = f", one of {report.tensor_parallel_size} ranks" if report.tensor_parallel_size > 1 else ""
    caching = "prefix caching" if settings.prefix_caching else "no prefix caching"
    draft = f", {settings.draft_tokens} draft tokens a step" if settings.draft_tokens else ""
    yield Text(
        f"{report.model} on {report.profile} ({report.evidence}){ranks}: "
        f"context {settings.max_model_len_tokens:,}, steps of {settings.max_batched_tokens:,} tokens, {caching}{draft}"
    )
    yield _groups(report.groups)
    yield _outside(report.components)
    for pool in report.capacity:
        yield Text(
            f"pool {pool.pool}: {_size(pool.total_bytes)} = {pool.num_blocks:,} blocks of {_size(pool.block_bytes)}, "
            f"one of them the null block: {pool.usable_blocks:,} for requests"
        )
    yield _requests(report)
    yield Text(_why(report))
    yield Text(report.verdict)
    if report.without_draft:
        yield Text(_draft_cost(report))
    for assumed in report.assumed:
        yield Text(f"assumed: {assumed}")
    if report.layers is not None:
        yield _layers(report.layers)


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)


def _groups(groups: Sequence[GroupLine]) -> Table:
    table = _table("block tables", "groups", "state", "layers", "tokens", "a block costs", "of it state")
    for line, alike in groupby(groups, key=lambda line: line.model_copy(update={"group": 0})):
        numbers = [member.group for member in alike]
        name = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
        window = f" (window {line.window_tokens:,})" if line.window_tokens else ""
        useful = f"{_size(line.useful_block_bytes)} ({line.useful_block_bytes / line.block_bytes:.1%})"
        tokens = f"{line.block_tokens:,}"
        table.add_row(name, " + ".join(line.state) + window, str(line.layers), tokens, _size(line.block_bytes), useful)
    return table


def _outside(components: Sequence[StateComponent]) -> Text:
    parts = [f"{component.id} {_size(component.engine_bytes)}" for component in components if component.group < 0]
    return Text(f"outside the pools: {', '.join(parts) if parts else 'nothing is known'}")


def _requests(report: InventoryReport) -> Table:
    title = "what a request takes at most, alone, with one sampled token"
    table = _table(title, "prompt", "blocks by group", "blocks", "costs", "needs", "of the pool", "at once")
    for request in (report.minimum_request, *report.requests):
        table.add_row(*_cells(request))
    return table


def _cells(request: RequestFootprint) -> tuple[str, ...]:
    runs = [(count, len(list(alike))) for count, alike in groupby(request.blocks)]
    by_group = " + ".join(f"{times}x{count}" if times > 1 else str(count) for count, times in runs)
    return (
        f"{request.tokens:,}",
        by_group,
        f"{request.total_blocks:,}",
        _size(request.charged_bytes),
        _size(request.useful_bytes),
        f"{request.pool_share:.2%}",
        f"{request.at_once:,}",
    )


def _why(report: InventoryReport) -> str:
    """Say why a short request takes so much: whole blocks of every group, as large as the largest group's."""
    shortest = report.requests[0]
    block = report.capacity[0].block_bytes
    tables = "one block table" if len(report.groups) == 1 else f"{len(report.groups)} block tables"
    return (
        f"a prompt of {shortest.tokens:,} tokens takes whole blocks, at least one in each of {tables}, and every block "
        f"costs {_size(block)} whatever is in it: {shortest.total_blocks} x {_size(block)} = "
        f"{_size(shortest.charged_bytes)}, {shortest.pool_share:.2%} of the pool, for "
        f"{_size(shortest.useful_bytes)} of state"
    )


def _draft_cost(report: InventoryReport) -> str:
    without = report.without_draft
    assert without is not None
    pool = without.capacity[0]
    return (
        f"without the draft: {without.groups} groups, {pool.num_blocks:,} blocks of {_size(pool.block_bytes)}; "
        f"a prompt of {without.requests[0].tokens:,} tokens takes {without.requests[0].total_blocks} blocks "
        f"({_size(without.requests[0].charged_bytes)}) and {without.requests[0].at_once:,} fit at once, "
        f"with it {report.requests[0].total_blocks} ({_size(report.requests[0].charged_bytes)}) "
        f"and {report.requests[0].at_once:,}"
    )


def _layers(layers: Sequence[LayerRow]) -> Table:
    table = _table("layers", "component", "layer", "type", "bytes a block")
    for row in layers:
        lost = "" if row.state_class is StateClass.PADDING else row.dtype
        table.add_row(row.component, row.layer, lost, f"{row.block_bytes:,}")
    return table


def _size(count: int) -> str:
    """Bytes in the largest binary unit that leaves at least 1 before the point."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= KIB and len(units) > 1:
        size /= KIB
        units.pop(0)
    return f"{size:.0f} B" if units[0] == "B" else f"{size:.2f} {units[0]}"
