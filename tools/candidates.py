"""Runs public traces through each true-size model on the scheduler engine, reconciles them, and writes the table.

usage: python tools/candidates.py WORKLOAD [--models NAME ...] [--name LABEL] [--pace N] [--keep FOLDER]
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
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vstate.bench.overhead import machine_line
from vstate.bench.scheduler import measure_scheduler
from vstate.reconcile.job import reconcile_run
from vstate.schemas.errors import VstateError
from vstate.schemas.manifests import PROCESS_FILE, ProcessManifest, read_manifest
from vstate.schemas.vocabulary import GIB, MIB
from vstate.tracer.engines.job import EngineMessage
from vstate.tracer.engines.request import RunRequest
from vstate.tracer.models.full_models import FULL_MODELS, full_model

# As a script, this file has only its own folder on the path; for mypy it is in the package `tools`.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.markdown_table import markdown_table  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "docs" / "candidates.json"
PAGE = ROOT / "docs" / "candidates.md"


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


def run_candidate(name: str, workload: Path, label: str, pace: float, folder: Path) -> dict[str, Any]:
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

    last = -1

    def told(message: EngineMessage) -> None:
        nonlocal last
        tenth = 10 * message.ended // message.requests if message.requests else last
        if tenth != last:
            last = tenth
            say(f"{name}: {message.ended} of {message.requests} requests")

    row, manifest = measure_scheduler(request, told, keep=True)
    summary = reconcile_run(request.out).model_dump(mode="json")
    process = read_manifest(next(request.out.glob(f"events/engine-*/{PROCESS_FILE}")), ProcessManifest)
    assert manifest.modelled is not None
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine_line(),
        "vllm": process.vllm_version,
        "model": f"full/{name}",
        "workload": label,
        "pace": pace,
        "most_waiting": most_waiting(request.out),
        "device": manifest.modelled.device,
        "tensor_parallel_size": manifest.settings["tensor_parallel_size"],
        "configuration_digest": model.configuration_digest,
        "assumed_fields": sum(row.status == "assumed" for row in model.evidence.fields),
        "platform": process.platform,
        "backends": Counter(process.backends.values()),
        "groups": len(process.groups),
        "pool_bytes": process.pools[0].total_bytes,
        "block_bytes": process.pools[0].block_bytes,
        "block_tokens": sorted({group.block_tokens for group in process.groups}),
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


def most_waiting(run: Path) -> int:
    """Return the longest queue at a step's end, whose requests take memory that finished ones do not."""
    import duckdb

    files = [str(path) for path in (run / "reconcile" / "cache" / "step").glob("*.parquet")]
    ((most,),) = duckdb.from_parquet(files).aggregate("max(waiting)").fetchall()
    return int(most)


def add_up(estimates: list[dict[str, Any]], source: str, scope: str) -> dict[str, int]:
    """Add the counts of all groups up for a source and a scope."""
    names = ("undercount_blocks", "overcount_blocks", "estimated_blocks", "observed_peak_blocks")
    chosen = [e for e in estimates if (e["source"], e["scope"]) == (source, scope)]
    return {name: sum(e[name] for e in chosen) for name in names}


def page(found: dict[str, Any]) -> str:
    """Write docs/candidates.md."""
    parts = [HEAD]
    by_workload: dict[str, list[dict[str, Any]]] = {}
    for record in found.values():
        by_workload.setdefault(record["workload"], []).append(record)
    models = {record["model"]: record for record in found.values()}
    parts += ["## What was built\n", built(list(models.values()))]
    for workload, chosen in by_workload.items():
        parts += [f"## {workload}\n", accounting(chosen), speed(chosen), not_run(chosen)]
    return "\n".join(parts)


def not_run(chosen: list[dict[str, Any]]) -> str:
    """Name the true-size models that a workload was not run on."""
    run = {record["model"] for record in chosen}
    missing = [f"full/{name}" for name in FULL_MODELS if f"full/{name}" not in run]
    return f"Not run: {', '.join(missing)}.\n" if missing else "Every true-size model was run.\n"


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
    return markdown_table([*head, "backends (CPU platform)", "configuration", "assumed fields"], lines)


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
    return markdown_table(head, lines)


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
            f"{r.get('pace', 1):g}",
            f"{r['most_waiting']:,}" if "most_waiting" in r else "-",
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
    note = (
        f"Measured on {chosen[0]['machine']}, other work beside it; one run each, so no spread. Pace is that of "
        "arrivals: 1 as recorded. Requests that wait take memory: growth is to be read beside the longest queue "
        "(-: not noted).\n\n"
    )
    head += ["events", "trace", "rows lost", "modelled time", "pace", "longest queue"]
    return note + markdown_table(head, lines)


def main() -> int:
    """Parse the command line, do it, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", nargs="?", type=Path, help="JSONL file")
    parser.add_argument("--models", nargs="*", default=[*FULL_MODELS], help="names after full/")
    parser.add_argument("--name", help="what the table calls the workload")
    parser.add_argument(
        "--pace", type=float, default=1.0, help="how many times faster than recorded its requests arrive"
    )
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
                record = run_candidate(name, options.workload, label, options.pace, folder)
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
