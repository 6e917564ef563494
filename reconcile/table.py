"""A summary as Rich renderables; who prints them decides where."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vstate.schemas.summary import ComponentSummary, EstimateSummary, Finding, Summary

VERDICT_STYLES = {"clean": "bold green", "findings": "bold red", "incomplete": "bold yellow"}
SEVERITY_STYLES = {"info": "cyan", "undercount": "yellow", "illegal": "red"}
KIBIBYTE = 1024
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def render_summary(summary: Summary) -> RenderableType:
    """Return the whole summary, the verdict first."""
    parts: list[RenderableType] = [_headline(summary), _outcome(summary)]
    parts += [Text(f"not checked: steps {gap}", style="yellow") for gap in summary.gaps]
    if summary.dropped:
        parts.append(Text(f"{summary.dropped} rows were dropped while recording", style="yellow"))
    parts += [_finding(finding) for finding in summary.findings]
    if summary.estimates:
        parts.append(estimate_table(summary.estimates))
    if summary.components:
        parts.append(component_table(summary.components))
    return Group(*parts)


def estimate_table(estimates: list[EstimateSummary]) -> Table:
    """Return the estimates in blocks, both errors apart; in brackets, how many admissions erred.

    It fits 80 columns, so what is the same for all rows has no column.
    """
    pools = len({row.pool for row in estimates}) > 1
    unknown = any(row.unknown_requests for row in estimates)
    table = _table("Estimates against observed peaks, in blocks")
    table.add_column("estimate", no_wrap=True)
    place = "pool/group" if pools else "group"
    admitted = ("admitted", "unknown") if unknown else ("admitted",)
    for name in (place, *admitted, "estimated", "observed", "under", "over"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in estimates:
        table.add_row(
            f"{row.source} {row.scope}",
            f"{row.pool}/{row.group}" if pools else str(row.group),
            str(row.requests),
            *([str(row.unknown_requests)] if unknown else []),
            str(row.estimated_blocks),
            str(row.observed_peak_blocks),
            _error(row.undercount_blocks, row.undercount_requests, "red"),
            _error(row.overcount_blocks, row.overcount_requests, ""),
        )
    return table


def component_table(components: list[ComponentSummary]) -> Table:
    """Return useful, charged and planned bytes with the evidence they rest on.

    A component's id tells its group, owner and class.
    """
    table = _table("State when requests released it")
    for name in ("component", "evidence"):
        table.add_column(name, no_wrap=True)
    for name in ("useful", "charged", "share", "planned"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in components:
        share = f"{row.useful_bytes / row.charged_bytes:.1%}" if row.charged_bytes else "-"
        table.add_row(
            row.component,
            row.evidence,
            readable_bytes(row.useful_bytes),
            readable_bytes(row.charged_bytes),
            share,
            readable_bytes(row.planned_bytes),
        )
    return table


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
    text.append(f"{finding.sentence}\n  {finding.action}")
    return text


def _error(blocks: int, requests: int, style: str) -> Text:
    return Text(f"{blocks} ({requests})" if requests else "0", style=style if requests else "")
