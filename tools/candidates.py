"""Runs public traces through each true-size model on the scheduler engine, reconciles them, and writes the table.

usage: python tools/candidates.py WORKLOAD [--models NAME ...] [--name LABEL] [--keep FOLDER]
       python tools/candidates.py --table

WORKLOAD is a file that `vstate workload import` made of a public trace. What each run found is kept in
docs/candidates.json, one record per model and workload, so that runs can be made one after the other, or on
several machines; --table writes docs/candidates.md from it. A run takes minutes and vLLM's scheduler sets its pace.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vstate.bench.overhead import machine_line
from vstate.bench.scheduler import measure_scheduler
from vstate.schemas.errors import VstateError
from vstate.tracer.engines.job import EngineMessage
from vstate.tracer.engines.request import RunRequest
from vstate.tracer.models.full_models import FULL_MODELS, full_model

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "docs" / "candidates.json"
PAGE = ROOT / "docs" / "candidates.md"
GIB = 1 << 30
MIB = 1 << 20


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"candidates: {text}", file=sys.stderr, flush=True)


@contextmanager
def records() -> Iterator[dict[str, Any]]:
    """Give the records to change; others that run at the same time wait."""
    with (RECORDS.with_suffix(".lock")).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found: dict[str, Any] = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
        yield found
        RECORDS.write_text(json.dumps(dict(sorted(found.items())), indent=1, sort_keys=True) + "\n")
    RECORDS.with_suffix(".lock").unlink(missing_ok=True)


def reconciled(run: Path) -> dict[str, Any]:
    """Reconcile a run and return its summary."""
    command = [sys.executable, "-m", "vstate.cli.main", "reconcile", str(run), "--json", "--fail-on", "never"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise VstateError(done.stderr.strip() or f"reconcile of {run} failed")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def run_candidate(name: str, workload: Path, label: str, folder: Path) -> dict[str, Any]:
    """Run one model and return its record.

    Raises:
        VstateError: The engine or reconcile failed.
    """
    model = full_model(name)
    request = RunRequest(
        model=f"full/{name}",
        workload=str(workload),
        out=folder / "run",
        seed=0,
        settings={},
        own_process=False,
        engine="scheduler",
        skip_too_long=True,
    )

    def told(message: EngineMessage) -> None:
        if message.requests and message.ended * 10 // message.requests != told.tenth:  # type: ignore[attr-defined]
            told.tenth = message.ended * 10 // message.requests  # type: ignore[attr-defined]
            say(f"{name}: {message.ended} of {message.requests} requests")

    told.tenth = -1  # type: ignore[attr-defined]
    row, manifest = measure_scheduler(request, told, keep=True)
    summary = reconciled(request.out)
    process = json.loads(next(request.out.glob("events/engine-*/process.json")).read_text())
    backends: dict[str, int] = {}
    for backend in process["backends"].values():
        backends[backend] = backends.get(backend, 0) + 1
    assert manifest.modelled is not None
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine_line(),
        "vllm": process["vllm_version"],
        "model": f"full/{name}",
        "workload": label,
        "device": manifest.modelled.device,
        "tensor_parallel_size": manifest.settings["tensor_parallel_size"],
        "configuration_digest": model.configuration_digest,
        "assumed_fields": sum(row.status == "assumed" for row in model.evidence.fields),
        "platform": process["platform"],
        "backends": backends,
        "groups": len(process["groups"]),
        "pool_bytes": process["pools"][0]["total_bytes"],
        "block_bytes": process["pools"][0]["block_bytes"],
        "block_tokens": sorted({group["block_tokens"] for group in process["groups"]}),
        "outcome": manifest.outcome,
        "skipped": manifest.skipped_requests,
        "verdict": summary["verdict"],
        "illegal": [finding for finding in summary["findings"] if finding["severity"] != "info"],
        "estimates": {
            f"{e['source']} {e['scope']}": add_up(summary["estimates"], e["source"], e["scope"])
            for e in summary["estimates"]
        },
        "components": summary["components"],
        "bench": asdict(row),
    }


def add_up(estimates: list[dict[str, Any]], source: str, scope: str) -> dict[str, int]:
    """Add the counts of all groups up for a source and a scope."""
    names = ("undercount_blocks", "overcount_blocks", "estimated_blocks", "observed_peak_blocks")
    chosen = [e for e in estimates if (e["source"], e["scope"]) == (source, scope)]
    return {name: sum(e[name] for e in chosen) for name in names}


def table(head: list[str], lines: list[list[str]]) -> str:
    """Format a table of Markdown."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def page(found: dict[str, Any]) -> str:
    """Write docs/candidates.md."""
    parts = [HEAD]
    by_workload: dict[str, list[dict[str, Any]]] = {}
    for record in found.values():
        by_workload.setdefault(record["workload"], []).append(record)
    models = {record["model"]: record for record in found.values()}
    parts += ["## What was built\n", built(list(models.values()))]
    for workload, chosen in by_workload.items():
        parts += [f"## {workload}\n", accounting(chosen), speed(chosen)]
    missing = [f"full/{name}" for name in FULL_MODELS if f"full/{name}" not in models]
    parts.append(f"Not run: {', '.join(missing)}.\n" if missing else "Every true-size model was run.\n")
    return "\n".join(parts)


HEAD = """# The true-size models under public traffic

<!-- Written by `python tools/candidates.py --table` from docs/candidates.json; do not edit. -->

vLLM's own engine core, scheduler, KV-cache manager and pools, at the true size of each model; no forward and no GPU.
Blocks, hits, preemptions and evictions are **booked**: they are the engine's own, on the CPU platform's geometry.
Weights, device memory and tensor-parallel share set the pool's size; the deployment is **assumed**. Time is
**modelled** by a data sheet and has never been compared with hardware; tokens are seeded, drafts accepted at assumed
rates. No correctness run and no benchmark on a GPU was made. The traces are published by others and not part of this
repository: [workload.md](workload.md) says where they are.
"""


def built(chosen: list[dict[str, Any]]) -> str:
    """Write what each model's build is, and how far its configuration is sourced."""
    lines = [
        [
            f"`{r['model']}`",
            f"{r['tensor_parallel_size']} x {r['device']}",
            f"{r['pool_bytes'] / GIB:.1f} GiB",
            f"{r['block_bytes'] / MIB:.2f} MiB / {', '.join(map(str, r['block_tokens']))}",
            str(r["groups"]),
            ", ".join(f"{count} {name}" for name, count in sorted(r["backends"].items())),
            f"`{r['configuration_digest'][:12]}`",
            str(r["assumed_fields"]),
        ]
        for r in chosen
    ]
    head = ["model", "deployment (assumed)", "pool of a rank", "block: bytes / tokens", "groups"]
    return table([*head, "backends (CPU platform)", "configuration", "assumed fields"], lines)


def accounting(chosen: list[dict[str, Any]]) -> str:
    """Write what was estimated and held."""
    lines = []
    for r in chosen:
        outcome, life, naive = r["outcome"], r["estimates"]["vstate life"], r["estimates"]["naive life"]
        gate = r["estimates"]["stock prefill"]
        lines.append(
            [
                f"`{r['model']}`",
                f"{outcome['finished']:,}" + (f" ({r['skipped']} too long)" if r["skipped"] else ""),
                f"{outcome['prefix_hit_tokens']:,}",
                f"{outcome['preemptions']:,}",
                f"{outcome['evictions']:,}",
                f"{life['observed_peak_blocks']:,}",
                f"{naive['undercount_blocks']:,}",
                f"{gate['undercount_blocks']:,}",
                f"{life['undercount_blocks']:,}",
                f"{life['overcount_blocks']:,}",
                f"{r['verdict']}, {len(r['illegal'])} illegal",
            ]
        )
    head = ["model", "finished", "hit tokens", "preemptions", "evictions", "blocks held (booked)"]
    head += ["naive under", "vLLM's gate under (prefill)", "vstate under", "vstate over", "reconcile"]
    return table(head, lines)


def speed(chosen: list[dict[str, Any]]) -> str:
    """Write how fast it ran and what memory it took."""
    lines = [
        [
            f"`{r['model']}`",
            f"{b['steps']:,}",
            f"{b['seconds']:,.0f} s",
            f"{b['requests_per_second']}",
            f"{b['steps_per_second']}",
            f"{b['peak_bytes'] / MIB:,.0f} MiB",
            f"{b['growth_bytes'] / MIB:+.1f} MiB",
            f"{b['events']:,}",
            f"{b['trace_bytes'] / MIB:.1f} MiB",
            str(b["lost_rows"]),
            f"{b['modelled_seconds']:,.0f} s",
        ]
        for r in chosen
        for b in [r["bench"]]
    ]
    head = [
        "model",
        "steps",
        "wall (measured)",
        "requests/s",
        "steps/s",
        "peak memory",
        "growth after the first quarter",
    ]
    note = f"Measured on {chosen[0]['machine']}, other work beside it; one run each, so no spread.\n\n"
    return note + table([*head, "events", "trace", "rows lost", "modelled time"], lines)


def main() -> int:
    """Parse the command line, do it, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", nargs="?", type=Path, help="JSONL file")
    parser.add_argument("--models", nargs="*", default=[*FULL_MODELS], help="names after full/")
    parser.add_argument("--name", help="what the table calls the workload")
    parser.add_argument("--keep", type=Path, help="keep the runs in this folder")
    parser.add_argument("--table", action="store_true", help="write docs/candidates.md and run nothing")
    options = parser.parse_args()
    if options.table == (options.workload is not None):
        parser.error("give a workload or --table")
    failed = []
    for name in () if options.table else options.models:
        label = options.name or options.workload.name
        with tempfile.TemporaryDirectory(prefix="vstate-candidates-") as scratch:
            folder = options.keep / name if options.keep else Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            try:
                record = run_candidate(name, options.workload, label, folder)
            except VstateError as error:
                say(f"{name}: {error}")
                failed.append(name)
                continue
        with records() as found:
            found[f"{label}: full/{name}"] = record
        say(f"{name}: {record['verdict']}, {len(record['illegal'])} illegal findings")
    PAGE.write_text(page(json.loads(RECORDS.read_text())))
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
