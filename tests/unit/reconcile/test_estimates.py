"""Who estimated what, judged by the peak of each admission."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.small import SmallTrace
from support.traces import group_manifest, process_manifest
from vstate.reconcile.estimates import formulas as real_formulas
from vstate.schemas.manifests import EngineSettings, GroupManifest
from vstate.schemas.summary import EstimateSummary, Summary
from vstate.schemas.tables.estimate import EstimateVerdict
from vstate.schemas.tables.request import RequestKind

Summarise = Callable[..., Summary]
Key = tuple[str, str, int]


def by_key(summary: Summary) -> dict[Key, EstimateSummary]:
    return {(row.source, row.scope, row.group): row for row in summary.estimates}


def blocks(row: EstimateSummary) -> tuple[int, int, int, int]:
    return (
        row.estimated_blocks,
        row.observed_peak_blocks,
        row.undercount_blocks,
        row.overcount_blocks,
    )


def preempted_once() -> SmallTrace:
    """Two admissions: 2 blocks, 3 at preemption; then 4 of which 3 until the prefill ends."""
    trace = SmallTrace()
    trace.arrives(0)
    trace.begins()
    trace.estimates(0, new=9, verdict=EstimateVerdict.REFUSED)
    trace.request(RequestKind.REFUSE, 0, attempt=1)
    trace.schedules(waiting=1)
    trace.begins()
    trace.estimates(0, new=2, held=1)
    trace.allocates(0, [1, 2])
    trace.admits(0)
    trace.prefills(0, scheduled=8)
    trace.schedules(running=1)
    trace.begins()
    trace.allocates(0, [3])
    trace.ends(0, RequestKind.PREEMPT, computed=8)
    trace.frees(0, [3])
    trace.frees(0, [2, 1])
    trace.schedules(waiting=1)
    trace.begins()
    trace.estimates(0, new=2, attempt=2)
    trace.allocates(0, [1])
    trace.admits(0, attempt=2)
    trace.prefills(0, scheduled=4, attempt=2)
    trace.schedules(running=1)
    trace.begins()
    trace.allocates(0, [2, 3])
    trace.prefills(0, scheduled=6, computed=4, attempt=2)
    trace.schedules(running=1)
    trace.begins()
    trace.allocates(0, [4])
    trace.schedules(running=1)
    trace.ends(0, attempt=2)
    trace.frees(0, [4, 3, 2, 1])
    trace.completes()
    return trace


def test_every_admission_is_judged_apart(summarise: Summarise) -> None:
    summary = summarise(preempted_once().rows, process_manifest())
    rows = by_key(summary)
    prefill, life = rows["stock", "prefill", 0], rows["stock", "life", 0]
    assert (prefill.requests, prefill.unknown_requests) == (2, 0)
    assert blocks(prefill) == (3 + 2, 3 + 3, 1, 0)
    assert (prefill.undercount_requests, prefill.overcount_requests) == (1, 0)
    assert blocks(life) == (3 + 2, 3 + 4, 2, 0)
    assert blocks(rows["naive", "life", 0]) == (4 + 4, 3 + 4, 0, 1)
    assert [(f.rule, f.severity, f.count) for f in summary.findings] == [("I1", "info", 1)]
    assert (summary.outcome["refusals"], summary.outcome["preemptions"]) == (1, 1)
    assert (summary.outcome["admissions"], summary.outcome["resumes"]) == (1, 1)


def test_rows_stand_in_a_fixed_order(summarise: Summarise) -> None:
    trace = preempted_once()
    trace.estimates(0, new=0, group=1)
    manifest = process_manifest(groups=[group_manifest(0), group_manifest(1)])
    keys = [(e.source, e.scope, e.pool, e.group) for e in summarise(trace.rows, manifest).estimates]
    assert keys == sorted(keys)
    assert {source for source, *_ in keys} == {"naive", "stock", "vstate"}


def test_errors_of_both_signs_are_never_netted(summarise: Summarise, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_prompt(group: GroupManifest, settings: EngineSettings, prompt: int, output: int) -> int:
        return prompt

    monkeypatch.setattr("vstate.reconcile.estimates.formulas", lambda: {"vstate": by_prompt})
    trace = SmallTrace()
    for key, prompt in ((0, 1), (1, 5)):
        trace.arrives(key, prompt)
    trace.begins()
    for key, prompt, held in ((0, 1, [1, 2, 3]), (1, 5, [4, 5])):
        trace.allocates(key, held)
        trace.admits(key, prompt=prompt)
    trace.schedules(running=2)
    for key, held in ((0, [1, 2, 3]), (1, [4, 5])):
        trace.ends(key)
        trace.frees(key, held)
    trace.completes()
    (row,) = summarise(trace.rows, process_manifest()).estimates
    assert blocks(row) == (6, 5, 2, 3)
    assert (row.requests, row.undercount_requests, row.overcount_requests) == (2, 1, 1)


def test_an_admission_that_never_held_a_block_has_a_peak_of_zero(summarise: Summarise) -> None:
    trace = SmallTrace()
    trace.arrives(0)
    trace.arrives(1)
    trace.begins()
    trace.admits(0)
    trace.schedules(running=1, waiting=1)
    trace.ends(0)
    trace.ends(1, RequestKind.ABORT, attempt=0)
    trace.completes()
    rows = by_key(summarise(trace.rows, process_manifest()))
    assert rows["naive", "life", 0].requests == 1, "the other one was never admitted"
    assert blocks(rows["naive", "life", 0]) == (4, 0, 0, 4)


def test_a_session_is_judged_by_its_last_lengths(summarise: Summarise) -> None:
    trace = SmallTrace()
    trace.arrives(0)
    trace.begins()
    trace.allocates(0, [1, 2])
    trace.admits(0, prompt=4, output=4)
    trace.schedules(running=1)
    trace.request(RequestKind.EXTEND, 0, attempt=1, prompt_tokens=12, max_tokens=4)
    trace.ends(0)
    trace.frees(0, [1, 2])
    trace.completes()
    rows = by_key(summarise(trace.rows, process_manifest()))
    assert rows["naive", "life", 0].estimated_blocks == 4


def test_the_real_formulas_take_a_group_and_lengths() -> None:
    manifest = process_manifest()
    for formula in real_formulas().values():
        assert formula(manifest.groups[0], manifest.settings, 10, 4) >= 0
