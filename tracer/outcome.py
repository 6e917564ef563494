"""Counts what happened in a run, from its streams alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from vstate.schemas.manifests import EVENTS_FOLDER
from vstate.schemas.streams import StreamFile, StreamReader, code_indices, stream_file, stream_files
from vstate.schemas.tables import TABLES
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.vocabulary import Holder

_REQUEST_COUNTS = {
    RequestKind.ARRIVE: "requests",
    RequestKind.ADMIT: "admissions",
    RequestKind.RESUME: "resumes",
    RequestKind.REFUSE: "refusals",
    RequestKind.PREEMPT: "preemptions",
    RequestKind.ABORT: "aborts",
    RequestKind.FINISH: "finished",
    RequestKind.PREFILL_CHUNK: "prefill_chunks",
}


def stream_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream, up to the last whole one of a stream that was cut.

    Raises:
        VstateError: The file is no stream of its table in this schema version, or is damaged.
    """
    yield from checked_batches(stream_file(path))


def stream_rows(process: Path, table: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table that a process wrote, in the order of its segments.

    Raises:
        VstateError: As `stream_batches`.
    """
    for path in sorted(process.glob(f"{table}-*.arrows")):
        for batch in stream_batches(path):
            yield from batch.to_pylist()


def checked_batches(stream: StreamFile) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream whose codes are all known.

    Raises:
        VstateError: The file is no stream of its table in this schema version, or is damaged.
    """
    coded = [(column.name, column.codes) for column in TABLES[stream.table].columns if column.codes is not None]
    for batch in StreamReader(stream):
        for name, codes in coded:
            code_indices(stream.table, name, codes, batch[name])
        yield batch


def count_outcome(run: Path) -> dict[str, int]:
    """Return how often each thing happened, by the names of `run.json`'s outcome.

    Raises:
        VstateError: A stream is not what it should be.
    """
    counts: Counter[str] = Counter(dict.fromkeys(_REQUEST_COUNTS.values(), 0))
    counts.update(dict.fromkeys(("evictions", "prefix_hits", "prefix_hit_tokens", "copy_on_write", "resets"), 0))
    count = {"request": _count_requests, "block": _count_blocks}
    events = run / EVENTS_FOLDER
    for folder in sorted(events.iterdir()) if events.is_dir() else ():
        for stream in stream_files(folder) if folder.is_dir() else ():
            if stream.table in count:
                for batch in checked_batches(stream):
                    count[stream.table](batch, counts)
    return dict(sorted(counts.items()))


def _count_requests(batch: pa.RecordBatch, counts: Counter[str]) -> None:
    for entry in pc.value_counts(batch["kind"]).to_pylist():
        kind = RequestKind(entry["values"])
        if kind in _REQUEST_COUNTS:
            counts[_REQUEST_COUNTS[kind]] += entry["counts"]
    hits = pc.filter(batch["hit_tokens"], pc.greater(batch["hit_tokens"], 0))
    counts["prefix_hits"] += len(hits)
    counts["prefix_hit_tokens"] += pc.sum(hits).as_py() or 0


def _count_blocks(batch: pa.RecordBatch, counts: Counter[str]) -> None:
    kind = batch["kind"]
    lengths = pc.list_value_length(batch["blocks"])
    counts["evictions"] += pc.sum(pc.filter(lengths, pc.equal(kind, BlockKind.EVICT))).as_py() or 0
    counts["resets"] += pc.sum(pc.equal(kind, BlockKind.RESET)).as_py() or 0
    copies = pc.and_(pc.equal(kind, BlockKind.PIN), pc.equal(batch["request_key"], Holder.COPY_ON_WRITE))
    counts["copy_on_write"] += pc.sum(copies).as_py() or 0
