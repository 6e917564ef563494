"""How long reconcile takes beside a plain scan of the same files, and whether its memory stays bounded."""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vstate.bench.synthetic_run import write_synthetic_run
from vstate.schemas.errors import VstateError

ROUNDS = 3
PEAK_UNIT = 1024
"""``ru_maxrss`` counts KiB on Linux."""


@dataclass(frozen=True)
class ReconcileRow:
    """One run of one size; all of it measured, the run made up.

    Attributes:
        events: Rows of the run.
        cache_seconds: From streams to sorted Parquet, once per run.
        catalogue_seconds: Replay and all rules, median of the rounds, reading Parquet.
        scan_seconds: One aggregate over the same Parquet by a plain DuckDB, median of the rounds.
        scan_ratio: The catalogue's time over the scan's, median of the rounds.
        peak_bytes: Most memory that the process of the catalogue had resident.
        parquet_bytes: Size of the Parquet files.
        rules: Rules that were applied.
        verdict: What came out; a synthetic run is clean.
    """

    events: int
    cache_seconds: float
    catalogue_seconds: float
    scan_seconds: float
    scan_ratio: float
    peak_bytes: int
    parquet_bytes: int
    rules: int
    verdict: str


def measure_reconcile(events: int, told: Callable[[str], None]) -> ReconcileRow:
    """Write a run, reconcile it and scan it, in turns, each in a process of its own.

    Raises:
        VstateError: A process failed.
    """
    with tempfile.TemporaryDirectory(prefix="vstate-bench-") as scratch:
        run = Path(scratch) / "run"
        told(f"writing a run of {events:,} events")
        rows = write_synthetic_run(run, events)
        told("from streams to Parquet")
        cache = _timed("cache", run)
        catalogues, scans = [], []
        for number in range(ROUNDS):
            told(f"round {number + 1} of {ROUNDS}")
            catalogues.append(_timed("catalogue", run))
            scans.append(_timed("scan", run))
        parquet = sum(path.stat().st_size for path in (run / "reconcile").rglob("*.parquet"))
        shutil.rmtree(run)
    return ReconcileRow(
        events=rows,
        cache_seconds=cache["seconds"],
        catalogue_seconds=statistics.median(each["seconds"] for each in catalogues),
        scan_seconds=statistics.median(each["seconds"] for each in scans),
        scan_ratio=statistics.median(
            catalogue["seconds"] / scan["seconds"] for catalogue, scan in zip(catalogues, scans, strict=True)
        ),
        peak_bytes=max(each["peak_bytes"] for each in catalogues),
        parquet_bytes=parquet,
        rules=catalogues[0]["rules"],
        verdict=catalogues[0]["verdict"],
    )


def rows_as_json(rows: list[ReconcileRow]) -> list[dict[str, Any]]:
    """Return rows as JSON values."""
    return [asdict(row) for row in rows]


def _timed(what: str, run: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "vstate.bench.reconcile", what, str(run)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise VstateError(f"{what} ended with {done.returncode}: {last}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Do one thing to a run, and print how long it took."""
    what, run = sys.argv[1], Path(sys.argv[2])
    act = {"cache": _cache, "catalogue": _catalogue, "scan": _scan}[what]
    act(run, only_imports=True)
    begun = time.perf_counter()
    told = act(run, only_imports=False)
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * PEAK_UNIT
    print(json.dumps({"seconds": seconds, "peak_bytes": peak} | told))


def _cache(run: Path, *, only_imports: bool) -> dict[str, Any]:
    from vstate.reconcile.cache import update_cache
    from vstate.reconcile.streams import find_run

    if not only_imports:
        update_cache(find_run(run))
    return {}


def _catalogue(run: Path, *, only_imports: bool) -> dict[str, Any]:
    from vstate.reconcile.job import reconcile_run
    from vstate.reconcile.rules import read_rules

    if only_imports:
        return {}
    return {"verdict": reconcile_run(run).verdict, "rules": len(read_rules())}


def _scan(run: Path, *, only_imports: bool) -> dict[str, Any]:
    import duckdb

    from vstate.reconcile.replay import DUCKDB_SETTINGS

    if only_imports:
        return {}
    with duckdb.connect(config=dict(DUCKDB_SETTINGS)) as connection:
        for folder in sorted((run / "reconcile" / "cache").iterdir()):
            files = [str(path) for path in folder.glob("*.parquet")]
            if files:
                connection.from_parquet(files).aggregate("count(*), sum(seq)").fetchall()
    return {}


if __name__ == "__main__":
    main()
