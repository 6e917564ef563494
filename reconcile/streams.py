"""Find the event streams of a run and read them batch by batch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from vstate.schemas.errors import VstateError
from vstate.schemas.manifests import (
    EVENTS_FOLDER,
    PROCESS_FILE,
    RUN_FILE,
    ManifestT,
    ProcessManifest,
    RunManifest,
    read_manifest,
)
from vstate.schemas.table import TABLE_KEY, VERSION_KEY
from vstate.schemas.tables import TABLES
from vstate.schemas.vocabulary import SCHEMA_VERSION

ENGINE_ROLE = "engine"
STREAM_NAME = re.compile(r"(?P<table>[a-z_]+)-(?P<segment>\d+)\.arrows")
PREFIX_BYTES = 8
"""Bytes before a message of a stream: the marker and the length of the message's metadata."""
CONTINUATION = b"\xff\xff\xff\xff"
"""First bytes of every message of an Arrow IPC stream (Arrow columnar format, "Encapsulated message
format")."""


@dataclass(frozen=True)
class StreamFile:
    """One segment of one table of one process."""

    path: Path
    table: str
    segment: int
    size_bytes: int

    @property
    def key(self) -> str:
        """Name of the stream inside its run, the same wherever the run lies."""
        return f"{self.path.parent.name}/{self.path.name}"


@dataclass(frozen=True)
class EngineFolder:
    """What one engine process left: its manifest and its streams in segment order."""

    engine: int
    path: Path
    manifest: ProcessManifest
    streams: tuple[StreamFile, ...]

    @property
    def closed(self) -> bool:
        """Whether the process told at its end what it wrote; one that was killed did not."""
        closing = self.manifest.closing
        return closing is not None and not closing.writer_error

    @property
    def lost_rows(self) -> int:
        """Rows that the process knows it dropped."""
        return self.manifest.closing.lost_rows if self.manifest.closing else 0

    @property
    def wrote_everything(self) -> bool:
        """Whether every row up to the end of the process was written."""
        return self.closed and self.lost_rows == 0


@dataclass(frozen=True)
class RunFolder:
    """A run on disk. `engines` are numbered in the order in which they started."""

    path: Path
    manifest: RunManifest | None
    engines: tuple[EngineFolder, ...]

    @property
    def model(self) -> str:
        """The model as the launcher named it, else as the engine did."""
        return self.manifest.model if self.manifest else self.engines[0].manifest.settings.model

    @property
    def engine_kind(self) -> str:
        """`full` or `scheduler`; a run without `run.json` came from an engine of its own."""
        return self.manifest.engine if self.manifest else "full"


def find_run(path: Path) -> RunFolder:
    """Find the engine processes of the run at `path`.

    Raises:
        VstateError: `path` is no readable run, or holds nothing that an engine recorded.
    """
    try:
        return _find_run(path)
    except PermissionError as error:
        raise VstateError(
            f"cannot read {error.filename or path}: permission denied; runs are private to the user who recorded them"
        ) from error


def _find_run(path: Path) -> RunFolder:
    if not path.exists():
        raise VstateError(f"{path} does not exist; give the folder of a recorded run")
    if not path.is_dir():
        raise VstateError(f"{path} is a file; give the folder of a recorded run")
    events = path / EVENTS_FOLDER
    if not events.is_dir():
        raise VstateError(_no_run_here(path))
    manifest = None
    if (path / RUN_FILE).exists():
        manifest = _manifest(path / RUN_FILE, RunManifest)
    found = []
    for folder in sorted(entry for entry in events.iterdir() if entry.is_dir()):
        process = _manifest(folder / PROCESS_FILE, ProcessManifest)
        if process.role == ENGINE_ROLE:
            found.append((process.clock.wall_ns, folder.name, folder, process))
    if not found:
        raise VstateError(f"{events} holds no engine process; nothing was recorded in this run")
    engines = tuple(
        EngineFolder(number, folder, process, _streams(folder))
        for number, (_, _, folder, process) in enumerate(sorted(found, key=lambda entry: entry[:2]))
    )
    if not any(engine.streams for engine in engines):
        raise VstateError(f"{engines[0].path} holds no event streams; the engine recorded nothing")
    return RunFolder(path, manifest, engines)


def _manifest(path: Path, kind: type[ManifestT]) -> ManifestT:
    try:
        return read_manifest(path, kind)
    except PermissionError:
        raise
    except OSError as error:
        raise VstateError(f"cannot read {path}: {error.strerror}") from error


def _no_run_here(path: Path) -> str:
    inside = sorted(entry.name for entry in path.iterdir() if (entry / EVENTS_FOLDER).is_dir())
    if inside:
        return f"{path} holds {len(inside)} runs; name one of them, such as {path / inside[-1]}"
    if any(path.iterdir()):
        return f"{path} has no {EVENTS_FOLDER} folder; it is not a run that vstate recorded"
    return f"{path} is empty; no run was recorded there"


def _streams(folder: Path) -> tuple[StreamFile, ...]:
    streams = []
    for path in folder.iterdir():
        if path.suffix != ".arrows":
            continue
        match = STREAM_NAME.fullmatch(path.name)
        if match is None or match["table"] not in TABLES:
            raise VstateError(
                f"{path} names no table of schema version {SCHEMA_VERSION}; it was not written by this vstate"
            )
        size_bytes = path.stat().st_size
        streams.append(StreamFile(path, match["table"], int(match["segment"]), size_bytes))
    return tuple(sorted(streams, key=lambda stream: (stream.table, stream.segment)))


class StreamReader:
    """The record batches of a stream, up to the last whole one.

    A process that is killed, or still writes, leaves a part of a batch at the end of the file;
    `truncated` then is true after iteration. Damage anywhere else is an error.
    """

    def __init__(self, stream: StreamFile) -> None:
        """Keep the stream; it is opened by iteration."""
        self._stream = stream
        self.truncated = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches in file order.

        Raises:
            VstateError: The file cannot be read, is no stream of this table and schema version,
                or is damaged before its end.
        """
        path = self._stream.path
        try:
            with path.open("rb") as file:
                whole = self._has_schema(file.read(PREFIX_BYTES))
            if whole:
                with pa.OSFile(str(path)) as source:
                    yield from self._batches(source)
        except PermissionError as error:
            raise VstateError(
                f"cannot read {path}: permission denied; runs are private to the user who recorded them"
            ) from error
        except FileNotFoundError as error:
            raise VstateError(f"{path} vanished while it was read; run the command again") from error

    def _has_schema(self, head: bytes) -> bool:
        """Tell whether the schema is whole; note a file that was cut before its end."""
        path = self._stream.path
        if head[:4] != CONTINUATION[: len(head)]:
            raise VstateError(f"{path} is not an Arrow stream; it was not written by vstate")
        whole = len(head) == PREFIX_BYTES and os.path.getsize(path) >= PREFIX_BYTES + int.from_bytes(head[4:], "little")
        self.truncated = not whole
        return whole

    def _batches(self, source: pa.NativeFile) -> Iterator[pa.RecordBatch]:
        path = self._stream.path
        try:
            reader = pa.ipc.open_stream(source)
        except (pa.ArrowException, OSError) as error:
            raise VstateError(f"{path} is not an Arrow stream; it was not written by vstate or is damaged") from error
        self._check_schema(reader.schema)
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as error:
                position = source.tell()
                if position >= os.path.getsize(path):
                    self.truncated = True
                    return
                raise VstateError(f"{path} is damaged before byte {position}; copy the run again") from error
            yield batch

    def _check_schema(self, schema: pa.Schema) -> None:
        path, table = self._stream.path, self._stream.table
        metadata = schema.metadata or {}
        version = metadata.get(VERSION_KEY, b"none").decode(errors="replace")
        if version != str(SCHEMA_VERSION):
            raise VstateError(
                f"{path} has schema version {version}, this vstate reads {SCHEMA_VERSION}; use the vstate that wrote it"
            )
        name = metadata.get(TABLE_KEY, b"none").decode(errors="replace")
        if name != table:
            raise VstateError(f"{path} holds table {name}, not {table}; was the file renamed?")
        if not schema.equals(TABLES[table].schema(), check_metadata=False):
            raise VstateError(
                f"{path} does not have the columns of table {table} in schema version "
                f"{SCHEMA_VERSION}; it was not written by vstate"
            )
