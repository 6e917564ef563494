"""The event streams of a process: found, checked against their declaration, read batch by batch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from vstate.schemas.errors import VstateError
from vstate.schemas.table import TABLE_KEY, VERSION_KEY
from vstate.schemas.tables import TABLES
from vstate.schemas.vocabulary import SCHEMA_VERSION

STREAM_NAME = re.compile(r"(?P<table>[a-z_]+)-(?P<segment>\d+)\.arrows")
PREFIX_BYTES = 8
"""Bytes before a message of a stream: the marker and the length of the message's metadata."""
CONTINUATION = b"\xff\xff\xff\xff"
"""First bytes of every message of an Arrow IPC stream (Arrow columnar format, "Encapsulated message
format")."""
END_OF_STREAM = CONTINUATION + bytes(4)
"""What closes a stream that its process ended: a message without metadata."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn a lack of permission to read at or below ``path`` into an error of one line.

    Raises:
        VstateError: Something that was touched inside the block may not be read.
    """
    try:
        yield
    except PermissionError as error:
        raise VstateError(
            f"cannot read {error.filename or path}: permission denied; runs are private to the user who recorded them"
        ) from error


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


def stream_file(path: Path) -> StreamFile:
    """Return what the name of a stream says of it.

    Raises:
        VstateError: It names no table, or is not there any more.
    """
    match = STREAM_NAME.fullmatch(path.name)
    if match is None or match["table"] not in TABLES:
        raise VstateError(
            f"{path} names no table of schema version {SCHEMA_VERSION}; it was not written by this vstate"
        )
    try:
        size_bytes = path.stat().st_size
    except FileNotFoundError as error:
        raise _vanished(path) from error
    return StreamFile(path, match["table"], int(match["segment"]), size_bytes)


def stream_files(folder: Path) -> tuple[StreamFile, ...]:
    """Return the streams of one process by table and segment.

    Raises:
        VstateError: A stream names no table.
    """
    streams = [stream_file(path) for path in folder.iterdir() if path.suffix == ".arrows"]
    return tuple(sorted(streams, key=lambda stream: (stream.table, stream.segment)))


def code_indices(table: str, column: str, codes: type[IntEnum], values: pa.Array) -> pa.Array:
    """Return the place of each value among the declared codes.

    Raises:
        VstateError: A value is no code of this schema version.
    """
    indices = pc.index_in(values, value_set=pa.array([int(code) for code in codes], values.type))
    if indices.null_count:
        strange = pc.min(values.filter(pc.is_null(indices))).as_py()
        raise VstateError(
            f"table {table} has {column} {strange}, which this vstate does not know; use the vstate that wrote it"
        )
    return indices


class StreamReader:
    """The record batches of a stream, up to the last whole one.

    A process that is killed, or still writes, leaves a part of a batch at the end of the file, or
    no end of the stream; `truncated` then is true after iteration. Damage anywhere else is an error.
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
            with reading(path):
                with path.open("rb") as file:
                    whole = self._has_schema(file.read(PREFIX_BYTES))
                if whole:
                    with pa.OSFile(str(path)) as source:
                        yield from self._batches(source)
        except FileNotFoundError as error:
            raise _vanished(path) from error

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
                # A file that was cut between two batches reads like one that ended.
                self.truncated = _before(source) != END_OF_STREAM
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


def _before(source: pa.NativeFile) -> bytes:
    """Return the last bytes that were read, as many as end a stream."""
    source.seek(max(0, source.tell() - len(END_OF_STREAM)))
    return bytes(source.read(len(END_OF_STREAM)))


def _vanished(path: Path) -> VstateError:
    return VstateError(f"{path} vanished while it was read; run the command again")
