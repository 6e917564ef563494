"""Replay of a run in SQL: tables of reference counts, books, peaks and releases.

Each file of ``sql/`` makes one table of its own name from those before it. DuckDB sorts and
spills; no row passes through Python.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from vstate.reconcile.cache import RECONCILE_FOLDER, Cache, Progress, no_progress, writing
from vstate.reconcile.columns import cached_schema
from vstate.reconcile.epochs import Checkpoint, Epoch, find_extent, find_holes
from vstate.reconcile.streams import EngineFolder, RunFolder
from vstate.schemas.errors import VstateError
from vstate.schemas.tables import TABLES
from vstate.schemas.tables.block import BLOCK, REFERENCE_DELTA
from vstate.schemas.tables.memory import MEMORY
from vstate.schemas.vocabulary import Holder

DUCKDB_SETTINGS = {
    "memory_limit": "1GB",
    "threads": str(min(8, os.cpu_count() or 1)),
    "preserve_insertion_order": "false",
    "autoinstall_known_extensions": "false",
}
"""What does not fit into memory is spilled beside the cache; nothing is fetched from anywhere.
Each thread needs memory of its own, so there are few."""

_ENVIRONMENT_ERRORS = (duckdb.OutOfMemoryException, duckdb.IOException, duckdb.InvalidInputException)
"""What DuckDB raises for want of memory or disk, or over a damaged Parquet file."""

SQL_FOLDER = Path(__file__).parent / "sql"

REPLAY_TABLES = (
    "slices",
    "snapshot_events",
    "request_events",
    "block_events",
    "step_events",
    "unknown_requests",
    "reference_counts",
    "pool_levels",
    "hash_intervals",
    "hash_levels",
    "books",
    "checkpoint_differences",
    "request_names",
    "attempts",
    "occupancy",
    "peaks",
    "releases",
)
"""The tables of the replay, in the order in which they need each other."""

PLACE_NUMBER = """
CREATE MACRO place_number(engine, epoch, pool, block) AS
    ((CAST(engine AS BIGINT) * 1048576 + epoch) * 16 + pool) * 67108864 + block
"""
"""One number for a block of a pool in an epoch of an engine: what is sorted by blocks is sorted by that. Room for
2^26 blocks, 2^4 pools, 2^20 epochs and 2^13 engines."""

ILLEGAL_IDLE_HOLDERS = (Holder.UNKNOWN, Holder.COPY_ON_WRITE)
"""Holders other than requests that must hold nothing while an engine has nothing to run."""


@dataclass(frozen=True)
class Replay:
    """A replayed run: `connection` has the tables, `gaps` what could not be replayed."""

    connection: Any
    gaps: tuple[str, ...]


def read_sql(name: str) -> str:
    """Return the text of ``sql/<name>.sql``."""
    return (SQL_FOLDER / f"{name}.sql").read_text(encoding="utf-8")


@contextmanager
def replayed(run: RunFolder, cache: Cache, progress: Progress = no_progress) -> Iterator[Replay]:
    """Replay a run and give its tables; they are gone afterwards.

    Raises:
        VstateError: The run's folder cannot be written, memory or disk do not suffice, or the
            cache is damaged.
    """
    with writing(run.path):
        spill = tempfile.TemporaryDirectory(prefix=".spill-", dir=run.path / RECONCILE_FOLDER)
    settings: dict[str, Any] = {**DUCKDB_SETTINGS, "temp_directory": spill.name}
    try:
        with spill, duckdb.connect(config=settings) as connection:
            _load(connection, run, cache)
            gaps = _load_epochs(connection, run, cache)
            connection.execute(PLACE_NUMBER)
            for done, name in enumerate(REPLAY_TABLES):
                progress(f"replaying {name.replace('_', ' ')}", done, len(REPLAY_TABLES))
                connection.execute(f"CREATE TABLE {name} AS {read_sql(name)}")
            yield Replay(connection, gaps)
    except _ENVIRONMENT_ERRORS as error:
        reason = str(error).splitlines()[0]
        raise VstateError(
            f"cannot replay {run.path}: {reason}; free memory or disk space, "
            f"or delete {cache.folder} to have it made again"
        ) from error


def load_rows(connection: Any, name: str, schema: pa.Schema, rows: list[dict[str, Any]]) -> None:
    """Make a table from rows that Python knows."""
    connection.register("given_rows", pa.Table.from_pylist(rows, schema))
    connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given_rows")
    connection.unregister("given_rows")


def _load(connection: Any, run: RunFolder, cache: Cache) -> None:
    for table in TABLES.values():
        files = [str(path) for path in cache.files(table.name)]
        if files:
            connection.from_parquet(files).create_view(f"trace_{table.name}")
        else:
            load_rows(connection, f"trace_{table.name}", cached_schema(table), [])
    connection.execute(
        "CREATE VIEW trace_order AS "
        "SELECT engine, seq, step FROM trace_block "
        "UNION ALL SELECT engine, seq, step FROM trace_request "
        "UNION ALL SELECT engine, seq, step FROM trace_estimate "
        "UNION ALL SELECT engine, seq, step FROM trace_step WHERE kind = 'scheduled'"
    )
    # A call is one event, whatever number of blocks it names.
    numbers = (
        f"SELECT engine, seq FROM trace_{name}" + (" WHERE position = 0" if name == BLOCK.name else "")
        for name in TABLES
        if name != MEMORY.name
    )
    connection.execute(f"CREATE VIEW trace_numbers AS {' UNION ALL '.join(numbers)}")
    connection.execute("CREATE TABLE number_holes (engine INTEGER, after_seq BIGINT, next_seq BIGINT)")
    _load_manifests(connection, run.engines, cache)
    load_rows(
        connection,
        "state_components",
        pa.schema(
            {
                "holder": pa.int32(),
                "component": pa.int32(),
                "id": pa.string(),
                "data_parallel_rank": pa.int32(),
                "engine_bytes": pa.int64(),
            }
        ),
        [
            {
                "holder": number,
                "component": index,
                "id": component.id,
                "data_parallel_rank": holder.manifest.data_parallel_rank,
                "engine_bytes": component.engine_bytes,
            }
            for number, holder in enumerate(run.holders)
            for index, component in enumerate(holder.manifest.components)
        ],
    )


def _load_manifests(connection: Any, engines: tuple[EngineFolder, ...], cache: Cache) -> None:
    integer, text = pa.int32(), pa.string()
    several = len(engines) > 1
    load_rows(
        connection,
        "engines",
        pa.schema({"engine": integer, "label": text, "process": text, "complete": pa.bool_()}),
        [
            {
                "engine": e.engine,
                "label": f" (engine {e.manifest.engine_id})" if several else "",
                "process": e.path.name,
                "complete": _complete(e, cache),
            }
            for e in engines
        ],
    )
    load_rows(
        connection,
        "pools",
        pa.schema(dict.fromkeys(("engine", "pool", "position", "num_blocks"), integer)),
        [
            {
                "engine": e.engine,
                "pool": pool.pool,
                "position": position,
                "num_blocks": pool.num_blocks,
            }
            for e in engines
            for position, pool in enumerate(e.manifest.pools)
        ],
    )
    columns = ("pool", "group", "block_tokens", "speculative_blocks")
    load_rows(
        connection,
        "groups",
        pa.schema(dict.fromkeys(("engine", *columns), integer)),
        [
            {"engine": e.engine} | {name: getattr(group, name) for name in columns}
            for e in engines
            for group in e.manifest.groups
        ],
    )
    load_rows(
        connection,
        "reference_deltas",
        pa.schema({"kind": text, "delta": integer}),
        [{"kind": kind.name.lower(), "delta": delta} for kind, delta in REFERENCE_DELTA.items()],
    )
    load_rows(
        connection,
        "holders",
        pa.schema({"code": pa.int64(), "name": text}),
        [{"code": int(h), "name": h.name.lower().replace("_", " ")} for h in Holder],
    )
    load_rows(
        connection,
        "illegal_idle_holders",
        pa.schema({"code": pa.int64()}),
        [{"code": int(holder)} for holder in ILLEGAL_IDLE_HOLDERS],
    )


def _load_epochs(connection: Any, run: RunFolder, cache: Cache) -> tuple[str, ...]:
    epochs: list[Epoch] = []
    checkpoints: list[Checkpoint] = []
    gaps: list[str] = []
    labels = _rank_labels(run.engines)
    for engine in run.engines:
        parts = cache.parts(engine.engine)
        find_holes(connection, engine.engine, parts)
        extent = find_extent(connection, engine.engine, parts, _complete(engine, cache))
        epochs += extent.epochs
        checkpoints += extent.checkpoints
        gaps += [f"{labels[engine.engine]}{first}..{last}" for first, last in extent.gaps]
    number, flag = pa.int64(), pa.bool_()
    load_rows(
        connection,
        "epochs",
        pa.schema(
            {
                "engine": pa.int32(),
                "epoch": pa.int32(),
                "snapshot_begin_seq": number,
                "snapshot_end_seq": number,
                "last_seq": number,
                "after_gap": flag,
                "before_gap": flag,
            }
        ),
        [vars(epoch) for epoch in epochs],
    )
    load_rows(
        connection,
        "checkpoints",
        pa.schema({"engine": pa.int32(), "epoch": pa.int32(), "begin_seq": number, "end_seq": number}),
        [vars(checkpoint) for checkpoint in checkpoints],
    )
    return tuple(gaps)


def _complete(engine: EngineFolder, cache: Cache) -> bool:
    """Whether everything that an engine recorded is known to be there."""
    return engine.wrote_everything and not any(part.truncated for part in cache.parts(engine.engine))


def _rank_labels(engines: tuple[EngineFolder, ...]) -> dict[int, str]:
    """Return how to tell the engines of a run apart before a gap; a single one needs no label."""
    if len(engines) == 1:
        return {engines[0].engine: ""}
    ranks = Counter(engine.manifest.data_parallel_rank for engine in engines)
    labels = {}
    for engine in engines:
        rank = engine.manifest.data_parallel_rank
        # An engine that was started again has the rank of the one before it.
        again = f" (engine {engine.manifest.engine_id})" if ranks[rank] > 1 else ""
        labels[engine.engine] = f"dp{rank}{again}: "
    return labels
