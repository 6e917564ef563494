"""`vstate reconcile`: exit codes, output, and what the summary counts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from support.scenarios import Scenario, run_scenario
from support.small import SmallTrace, one_request, summary_of
from support.traces import process_manifest, write_run
from vstate.cli.reconcile import reconcile
from vstate.reconcile.job import reconcile_run
from vstate.reconcile.table import readable_bytes, render_summary
from vstate.schemas.errors import MissingExtraError, VstateError
from vstate.schemas.summary import Finding, Severity, Summary
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.vocabulary import Holder

MANIFEST = process_manifest()
APP = typer.Typer()
APP.command()(reconcile)


def exit_code(run: Path, *options: str) -> int:
    return CliRunner().invoke(APP, [str(run), *options]).exit_code


def summary_with(*severities: Severity) -> Summary:
    findings = [
        Finding(rule="I0", title="", severity=severity, evidence="observed", count=1, sentence="", action="")
        for severity in severities
    ]
    return summary_of(verdict="incomplete", findings=findings)


@pytest.mark.parametrize(
    ("severity", "codes"),
    [
        (None, {"never": 0, "illegal": 0, "undercount": 0, "any": 0}),
        ("info", {"never": 0, "illegal": 0, "undercount": 0, "any": 1}),
        ("undercount", {"never": 0, "illegal": 0, "undercount": 1, "any": 1}),
        ("illegal", {"never": 0, "illegal": 1, "undercount": 1, "any": 1}),
    ],
)
def test_exit_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, severity: Severity | None, codes: dict[str, int]
) -> None:
    summary = summary_with(*([severity] if severity else []))
    monkeypatch.setattr("vstate.reconcile.job.reconcile_run", lambda *_: summary)
    assert {name: exit_code(tmp_path, "--fail-on", name) for name in codes} == codes
    assert exit_code(tmp_path) == codes["undercount"]


def test_a_leak_fails_the_command(tmp_path: Path) -> None:
    assert exit_code(write_run(tmp_path, one_request(kept=[1]), MANIFEST)) == 1


def test_json_is_the_summary_byte_for_byte(tmp_path: Path) -> None:
    engine = run_scenario(Scenario(seed=1, layout=2, steps=20))
    runs = [write_run(tmp_path / name, engine.log.rows, engine.manifest) for name in "ab"]
    printed = [CliRunner().invoke(APP, [str(run), "--json"]).stdout for run in [*runs, runs[0]]]
    assert printed[0] == printed[1] == printed[2]
    stored = runs[0] / "reconcile" / "summary.json"
    assert stored.read_text() == printed[0]
    assert stored.stat().st_mode & 0o777 == 0o600
    assert list(json.loads(printed[0])) == [
        "schema_version",
        "model",
        "engine",
        "steps",
        "requests",
        "events",
        "dropped",
        "gaps",
        "verdict",
        "outcome",
        "estimates",
        "components",
        "findings",
    ]


def test_a_bad_run_is_an_error_of_the_input(tmp_path: Path) -> None:
    result = CliRunner().invoke(APP, [str(tmp_path / "none")])
    assert isinstance(result.exception, VstateError)
    assert result.exception.exit_code == 2


def test_a_wrong_option_is_an_error_of_usage(tmp_path: Path) -> None:
    assert exit_code(tmp_path, "--fail-on", "sometimes") == 2


def test_without_duckdb_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'vstate\[analyze\]'"):
        reconcile(tmp_path)


def test_the_summary_counts_what_happened(tmp_path: Path) -> None:
    trace = SmallTrace()
    trace.arrives(0)
    trace.begins()
    trace.allocates(0, [1, 2])
    trace.admits(0, hit=8)
    trace.prefills(0, scheduled=2, computed=8)
    trace.calls(BlockKind.CACHE_INSERT, [1], block_hash=5)
    trace.calls(BlockKind.PIN, [1, 2], int(Holder.COPY_ON_WRITE), -1)
    trace.calls(BlockKind.FREE, [1, 2], int(Holder.COPY_ON_WRITE), -1)
    trace.calls(BlockKind.EVICT, [1], -1, -1)
    trace.schedules(running=1)
    trace.ends(0)
    trace.frees(0, [1, 2])
    trace.calls(BlockKind.RESET, [], -1, -1)
    trace.completes()
    summary = reconcile_run(write_run(tmp_path, trace.rows, MANIFEST))
    assert summary.outcome == {
        "requests": 1,
        "admissions": 1,
        "resumes": 0,
        "refusals": 0,
        "prefill_chunks": 1,
        "prefix_hits": 1,
        "prefix_hit_tokens": 8,
        "preemptions": 0,
        "finished": 1,
        "aborts": 0,
        "evictions": 1,
        "copy_on_write": 1,
        "resets": 1,
    }
    assert (summary.steps, summary.requests, summary.events) == (1, 1, len(trace.rows))


def test_the_table_names_verdict_findings_and_units(tmp_path: Path) -> None:
    summary = reconcile_run(write_run(tmp_path, one_request(kept=[1]), MANIFEST))
    summary.gaps.append("3..4")
    summary.dropped = 5
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render_summary(summary))
    text = console.export_text()
    for words in (
        "findings  tiny/launched (scheduler engine): 1 steps, 1 requests",
        "I3 Release [illegal, observed] 1: request req-0",
        "not checked: steps 3..4",
        "5 rows were dropped",
        "in blocks",
        "naive",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB"), (3 << 50, "3072.0 TiB")]
)
def test_bytes_are_readable(count: int, text: str) -> None:
    assert readable_bytes(count) == text
