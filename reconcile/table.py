"""A summary as Rich renderables; who prints them decides where."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vstate.schemas.summary import ComponentSummary, EstimateSummary, Finding, Summary
from vstate.schemas.vocabulary import Owner, StateClass

VERDICT_STYLES = {"clean": "bold green", "findings": "bold red", "incomplete": "bold yellow"}
SEVERITY_STYLES = {"info": "cyan", "undercount": "yellow", "illegal": "red"}
ESTIMATE_NAMES = {
    ("naive", "life"): "naive, whole life",
    ("stock", "prefill"): "vLLM's gate, prefill",
    ("stock", "life"): "vLLM's gate, whole life",
    ("vstate", "life"): "vstate, whole life",
}
CACHED_CLASSES = (StateClass.ENCODER_OUTPUT, StateClass.PROCESSOR_CACHE)
"""Classes whose planned bytes are room, which need not be filled."""
KIBIBYTE = 1024
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def render_summary(summary: Summary) -> RenderableType:
    """Return the whole summary, the verdict first."""
    parts: list[RenderableType] = [_headline(summary), _outcome(summary)]
    parts += [Text(f"not checked: steps {gap}", style="yellow") for gap in summary.gaps]
    if summary.dropped:
        parts.append(Text(f"{summary.dropped} rows were dropped while recording", style="yellow"))
    parts += [_finding(finding) for finding in summary.findings]
    if summary.components:
        parts.append(state_table(summary))
    if summary.estimates:
        parts.append(error_table(summary.estimates))
    if any(component.observed_bytes is not None for component in summary.components):
        parts.append(bytes_table(summary.components))
    return Group(*parts)


def state_table(summary: Summary) -> Table:
    """Return what each estimate said and what the engine did, a row per group and state class.

    Groups that agree in all figures share a row. Blocks are those of the whole group: conv and
    recurrent state share a page, so they are not told apart by class.
    """
    table = _table("State per group: blocks summed over admissions, bytes when released (booked)")
    for name in ("group", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("naive", "gate", "vstate", "engine", "useful", "charged", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    rows: dict[tuple[tuple[str, ...], ...], list[int]] = {}
    for group in dict.fromkeys(component.group for component in summary.components if component.group >= 0):
        rows.setdefault(_group_rows(summary, group), []).append(group)
    for lines, groups in rows.items():
        for number, line in enumerate(lines):
            table.add_row(_span(groups) if number == 0 else "", *line)
    return table


def _group_rows(summary: Summary, group: int) -> tuple[tuple[str, ...], ...]:
    """Return the cells of a group's components; blocks stand in the first row only."""
    by_source = {(e.source, e.scope): e for e in summary.estimates if e.group == group}
    life = by_source.get(("vstate", "life"))
    blocks = (
        _estimated(by_source.get(("naive", "life"))),
        _estimated(by_source.get(("stock", "prefill"))),
        _estimated(life),
        str(life.observed_peak_blocks) if life else "-",
    )
    members = [component for component in summary.components if component.group == group]
    return tuple(
        (
            f"{component.owner} {component.state_class}" if component.owner != Owner.TARGET else component.state_class,
            *(blocks if number == 0 else ("",) * len(blocks)),
            readable_bytes(component.useful_bytes),
            readable_bytes(component.charged_bytes),
            _share(component),
        )
        for number, component in enumerate(members)
    )


def _estimated(estimate: EstimateSummary | None) -> str:
    return "-" if estimate is None else str(estimate.estimated_blocks)


def _share(component: ComponentSummary) -> str:
    return f"{component.useful_bytes / component.charged_bytes:.1%}" if component.charged_bytes else "-"


def _span(groups: list[int]) -> str:
    """Return the numbers of the groups that a row stands for, ``0-2 each`` for several."""
    if len(groups) == 1:
        return str(groups[0])
    joined = list(range(groups[0], groups[-1] + 1)) == groups
    return (f"{groups[0]}-{groups[-1]}" if joined else ",".join(map(str, groups))) + " each"


def error_table(estimates: list[EstimateSummary]) -> Table:
    """Return how far each estimate was off, over all groups, both errors apart."""
    table = _table("Estimates against what was held, in blocks (in brackets: how many erred)")
    unknown = ("unknown",) if any(row.unknown_requests for row in estimates) else ()
    table.add_column("estimate", no_wrap=True)
    for name in ("said", "held", "under", "over", *unknown):
        table.add_column(name, justify="right", no_wrap=True)
    for source, scope in dict.fromkeys((row.source, row.scope) for row in estimates):
        rows = [row for row in estimates if (row.source, row.scope) == (source, scope)]
        table.add_row(
            ESTIMATE_NAMES.get((source, scope), f"{source}, {scope}"),
            str(sum(row.estimated_blocks for row in rows)),
            str(sum(row.observed_peak_blocks for row in rows)),
            _error(sum(r.undercount_blocks for r in rows), sum(r.undercount_requests for r in rows), "red"),
            _error(sum(r.overcount_blocks for r in rows), sum(r.overcount_requests for r in rows), ""),
            *(str(sum(row.unknown_requests for row in rows)) for _ in unknown),
        )
    return table


def bytes_table(components: list[ComponentSummary]) -> Table:
    """Return planned against real bytes, a row per component; the pools' rows of equal figures are joined."""
    table = _table("Planned against real bytes per worker (real: measured on tensors)")
    table.add_column("state", no_wrap=True)
    for name in ("planned", "real", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    rows: dict[tuple[str, ...], list[int]] = {}
    for component in components:
        place = component.component.partition("/")[2] if component.group >= 0 else component.component
        words = dict.fromkeys(place.split("/"))  # an encoder's own encoder is named once
        rows.setdefault((" ".join(words), *_planned_and_real(component)), []).append(component.group)
    for (state, *figures), groups in rows.items():
        where = f" (group {_span(groups)})" if groups[0] >= 0 else ""
        table.add_row(state + where, *figures)
    return table


def _planned_and_real(component: ComponentSummary) -> tuple[str, str, str]:
    planned, real = component.planned_bytes, component.observed_bytes
    if real is None:
        return readable_bytes(planned), "-", "-"
    cached = component.state_class in CACHED_CLASSES
    off = f"{real / planned:.1%} used" if cached and planned else readable_difference(real - planned)
    return readable_bytes(planned), readable_bytes(real), off


def readable_difference(difference: int) -> str:
    """Return a signed number of bytes, ``none`` for zero."""
    if not difference:
        return "none"
    return ("+" if difference > 0 else "-") + readable_bytes(abs(difference))


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)


def readable_bytes(count: int) -> str:
    """Return a number of bytes in the largest unit that leaves it at 1 or more."""
    size = float(count)
    for unit in BYTE_UNITS[:-1]:
        if size < KIBIBYTE:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= KIBIBYTE
    return f"{size:.1f} {BYTE_UNITS[-1]}"


def printable(text: str) -> str:
    """Return text with all that steers a terminal escaped: ids in it are whatever a client sent."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _headline(summary: Summary) -> Text:
    text = Text()
    text.append(summary.verdict, style=VERDICT_STYLES[summary.verdict])
    text.append(f"  {summary.model} ({summary.engine} engine): ")
    text.append(f"{summary.steps} steps, {summary.requests} requests, {summary.events} events")
    return text


def _outcome(summary: Summary) -> Text:
    counts = (
        f"{count} {name.replace('_', ' ')}" for name, count in summary.outcome.items() if count and name != "requests"
    )
    return Text(", ".join(counts), style="dim")


def _finding(finding: Finding) -> Text:
    text = Text()
    style = SEVERITY_STYLES[finding.severity]
    text.append(f"{finding.rule} {finding.title}", style=f"bold {style}")
    text.append(f" [{finding.severity}, {finding.evidence}] {finding.count}: ", style=style)
    text.append(f"{printable(finding.sentence)}\n  {finding.action}")
    return text


def _error(blocks: int, requests: int, style: str) -> Text:
    return Text(f"{blocks} ({requests})" if requests else "0", style=style if requests else "")
