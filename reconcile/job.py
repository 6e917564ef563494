"""The whole job: from a recorded run to its summary."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from vstate.reconcile.cache import (
    RECONCILE_FOLDER,
    Cache,
    Progress,
    no_progress,
    update_cache,
    writing,
)
from vstate.reconcile.components import summarise_components
from vstate.reconcile.estimates import judge_estimates
from vstate.reconcile.replay import Replay, read_sql, replayed
from vstate.reconcile.rules import apply_rule, read_rules
from vstate.reconcile.streams import RunFolder, find_run
from vstate.schemas.manifests import PRIVATE_FILE_MODE
from vstate.schemas.summary import Finding, Summary, Verdict
from vstate.schemas.vocabulary import Holder

SUMMARY_FILE = "summary.json"


def reconcile_run(path: Path, progress: Progress = no_progress) -> Summary:
    """Reconcile a run and write ``reconcile/summary.json`` in it.

    The same streams give the same bytes.

    Args:
        path: Folder of the run.
        progress: Told what is being done.

    Raises:
        VstateError: The run cannot be read, or its folder cannot be written.
    """
    run = find_run(path)
    cache = update_cache(run, progress)
    with replayed(run, cache, progress) as replay:
        summary = _summarise(run, cache, replay)
    _write_summary(run, summary)
    return summary


def summary_text(summary: Summary) -> str:
    """Return a summary as JSON with a stable order of keys."""
    return summary.model_dump_json(indent=2) + "\n"


def _summarise(run: RunFolder, cache: Cache, replay: Replay) -> Summary:
    estimates = judge_estimates(replay, run)
    components = summarise_components(replay, run)
    findings = [finding for rule in read_rules() for finding in apply_rule(replay.connection, rule)]
    outcome = _outcome(replay.connection)
    ((steps,),) = replay.connection.execute("SELECT count(*) FROM trace_step WHERE kind = 'scheduled'").fetchall()
    return Summary(
        model=run.model,
        engine=run.engine_kind,
        steps=steps,
        requests=outcome["requests"],
        events=cache.rows,
        dropped=sum(engine.lost_rows for engine in run.engines) + sum(holder.lost_rows for holder in run.holders),
        gaps=list(replay.gaps),
        verdict=_verdict(run, cache, replay, findings),
        outcome=outcome,
        estimates=estimates,
        components=components,
        findings=findings,
    )


def _outcome(connection: Any) -> dict[str, int]:
    counts = connection.execute(read_sql("outcome"), {"copy_on_write": int(Holder.COPY_ON_WRITE)})
    names = [column[0] for column in counts.description]
    (row,) = counts.fetchall()
    return {name: int(count) for name, count in zip(names, row, strict=True)}


def _verdict(run: RunFolder, cache: Cache, replay: Replay, findings: list[Finding]) -> Verdict:
    if any(finding.severity != "info" for finding in findings):
        return "findings"
    written = all(engine.wrote_everything for engine in run.engines)
    return "clean" if written and not cache.truncated and not replay.gaps else "incomplete"


def _write_summary(run: RunFolder, summary: Summary) -> None:
    path = run.path / RECONCILE_FOLDER / SUMMARY_FILE
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(run.path):
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE_MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(summary_text(summary))
        partial.replace(path)
