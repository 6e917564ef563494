"""First step of every job: the streams of a run as Parquet, read once and kept.

The cache lies under ``RUN/reconcile/cache/``, one folder per table, one part per stream. A part
is made again only when the size of its stream has changed, so that a live run costs what is new.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vstate.reconcile.columns import cached_batch, cached_schema
from vstate.reconcile.streams import RunFolder
from vstate.schemas.errors import VstateError
from vstate.schemas.manifests import (
    PRIVATE_FILE_MODE,
    PRIVATE_FOLDER_MODE,
    Manifest,
    read_manifest,
    write_manifest,
)
from vstate.schemas.streams import StreamFile, StreamReader
from vstate.schemas.tables import TABLES
from vstate.schemas.tables.memory import MEMORY
from vstate.schemas.vocabulary import SCHEMA_VERSION

RECONCILE_FOLDER = "reconcile"
CACHE_FOLDER = "cache"
CACHE_FILE = "cache.json"
CACHE_VERSION = 2
"""Version of what the parts hold; the cache of another version is made again."""

ROWS_PER_GROUP = 131_072
"""Rows that are collected before they are written: it bounds the memory of the conversion."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many parts of it are done, and how many there are."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Show nothing."""


class StreamPart(Manifest):
    """What one stream held when it was read. `first_seq` and `last_seq` are -1 without rows.

    `engine` is the number of the engine, and of the holder for the table `memory`, which only holders write.
    """

    stream: str
    table: str
    engine: int
    segment: int
    stream_bytes: int
    rows: int
    first_seq: int
    last_seq: int
    truncated: bool

    @property
    def file(self) -> str:
        """Its Parquet file inside the cache."""
        return part_file(self.table, self.engine, self.segment)


def part_file(table: str, engine: int, segment: int) -> str:
    """Return the name of a part inside the cache; names sort by engine and segment."""
    return f"{table}/engine-{engine:04d}-segment-{segment:06d}.parquet"


class CacheManifest(Manifest):
    """`cache.json`: which process each engine number stands for, and the parts."""

    schema_version: int = SCHEMA_VERSION
    cache_version: int = CACHE_VERSION
    engines: tuple[str, ...]
    holders: tuple[str, ...] = ()
    parts: tuple[StreamPart, ...]


@dataclass(frozen=True)
class Cache:
    """The cached tables of a run."""

    folder: Path
    manifest: CacheManifest

    def files(self, table: str) -> list[Path]:
        """Return the parts of a table, in the order of (engine, seq)."""
        return sorted(self.folder / part.file for part in self.manifest.parts if part.table == table)

    def parts(self, engine: int) -> list[StreamPart]:
        """Return what is known of the streams of one engine, by table and segment."""
        mine = (part for part in self.manifest.parts if part.engine == engine and part.table != MEMORY.name)
        return sorted(mine, key=lambda part: (part.table, part.segment))

    @property
    def truncated(self) -> bool:
        """Whether a stream of an engine was cut before its end.

        What a holder writes ends with its process, also where its engine has been switched off long ago.
        """
        return any(part.truncated for part in self.manifest.parts if part.table != MEMORY.name)

    @property
    def rows(self) -> int:
        """Rows in the streams of all tables."""
        return sum(part.rows for part in self.manifest.parts)


@contextmanager
def writing(run: Path) -> Iterator[None]:
    """Turn a failure to write inside a run into an error that says what to do.

    Raises:
        VstateError: The run's folder cannot be written.
    """
    try:
        yield
    except OSError as error:
        where = error.filename or run / RECONCILE_FOLDER
        raise VstateError(
            f"cannot write {where}: {error.strerror or error}; give yourself write permission and "
            f"room in {run}, or copy the run to a folder of your own"
        ) from error


def update_cache(run: RunFolder, progress: Progress = no_progress) -> Cache:
    """Bring the cache of a run up to date and return it.

    Raises:
        VstateError: A stream cannot be read, or the run's folder cannot be written.
    """
    folder = run.path / RECONCILE_FOLDER / CACHE_FOLDER
    with writing(run.path):
        for private in (folder.parent, folder, *(folder / table for table in TABLES)):
            private.mkdir(mode=PRIVATE_FOLDER_MODE, exist_ok=True)
    old = _known(folder, run)
    streams = [(engine.engine, stream) for engine in run.engines for stream in engine.streams]
    streams += [(number, stream) for number, holder in enumerate(run.holders) for stream in holder.streams]
    parts = []
    for done, (process, stream) in enumerate(streams):
        known = old.get(stream.key)
        if known is None or known.stream_bytes != stream.size_bytes:
            progress(f"reading {stream.key}", done, len(streams))
            known = _convert(run, process, stream, folder)
        parts.append(known)
    engines, holders = _process_names(run)
    manifest = CacheManifest(engines=engines, holders=holders, parts=tuple(parts))
    if tuple(old.values()) != manifest.parts:
        with writing(run.path):
            _remove_strays(folder, manifest)
            write_manifest(folder / CACHE_FILE, manifest)
    return Cache(folder, manifest)


def _known(folder: Path, run: RunFolder) -> dict[str, StreamPart]:
    """Return the parts that are still good; none where processes have other numbers now."""
    try:
        manifest = read_manifest(folder / CACHE_FILE, CacheManifest)
    except VstateError:
        return {}
    engines, holders = _process_names(run)
    same = manifest.engines == engines[: len(manifest.engines)] and manifest.holders == holders[: len(manifest.holders)]
    if manifest.cache_version != CACHE_VERSION or not same:
        return {}
    return {part.stream: part for part in manifest.parts if (folder / part.file).exists()}


def _process_names(run: RunFolder) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(engine.path.name for engine in run.engines), tuple(holder.path.name for holder in run.holders)


def _convert(run: RunFolder, process: int, stream: StreamFile, folder: Path) -> StreamPart:
    table = TABLES[stream.table]
    rows, first_seq, last_seq = 0, -1, -1
    reader = StreamReader(stream)
    path = folder / part_file(stream.table, process, stream.segment)
    with writing(run.path), _replaced(path, cached_schema(table)) as parquet:
        for batch in _joined(reader):
            numbers = pc.min_max(batch.column("seq")).as_py()
            first_seq = numbers["min"] if rows == 0 else first_seq
            last_seq = numbers["max"]
            rows += batch.num_rows
            parquet.write_batch(cached_batch(table, batch, process))
    return StreamPart(
        stream=stream.key,
        table=stream.table,
        engine=process,
        segment=stream.segment,
        stream_bytes=stream.size_bytes,
        rows=rows,
        first_seq=first_seq,
        last_seq=last_seq,
        truncated=reader.truncated,
    )


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches into row groups: a stream's are small, and each costs alike."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= ROWS_PER_GROUP:
            yield pa.concat_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.concat_batches(waiting)


@contextmanager
def _replaced(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Write a private Parquet file that takes its place only when it is whole."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE_MODE)
        with (
            os.fdopen(descriptor, "wb") as file,
            pq.ParquetWriter(file, schema, compression="zstd") as parquet,
        ):
            yield parquet
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _remove_strays(folder: Path, manifest: CacheManifest) -> None:
    """Drop the parts of streams that the run no longer has."""
    kept = {part.file for part in manifest.parts}
    for path in folder.glob("*/*.parquet"):
        if path.relative_to(folder).as_posix() not in kept:
            path.unlink()
