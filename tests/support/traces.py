"""Synthetic traces: rows in memory, and run folders with the declared streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from vstate.schemas.manifests import (
    EVENTS_FOLDER,
    PROCESS_FILE,
    RUN_FILE,
    ClockAnchor,
    ClosingCounts,
    EngineSettings,
    GroupManifest,
    Machine,
    PoolManifest,
    ProcessManifest,
    RunManifest,
    write_manifest,
)
from vstate.schemas.summary import Finding, Summary
from vstate.schemas.tables import TABLES
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.names import NameKind
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.tables.step import StepKind

BLOCK_BYTES = 4096
OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True)
class Row:
    """One row, with the segment and the chunk in which it is written."""

    table: str
    segment: int
    chunk: int
    cells: dict[str, Any]

    @property
    def seq(self) -> int:
        return int(self.cells["seq"])

    def changed(self, **cells: Any) -> Row:
        return replace(self, cells=self.cells | cells)


@dataclass
class TraceLog:
    """Rows of one process, numbered without holes."""

    rows: list[Row] = field(default_factory=list)
    seq: int = 0
    step: int = 0
    segment: int = 1
    chunk: int = 0
    chunk_first_step: int = 0
    lost_rows: int = 0

    def add(self, table: str, **cells: Any) -> Row:
        """Append a row; cells that are not given say nothing."""
        self.seq += 1
        given = {"seq": self.seq, "step": self.step, "time_ns": self.seq} | cells
        filled = {}
        for column in TABLES[table].columns:
            nothing: Any = [] if pa.types.is_list(column.type) else -1
            filled[column.name] = given.get(column.name, nothing)
        if table in ("block", "snapshot") and "block_hash" not in cells:
            filled["block_hash"] = 0
        row = Row(table, self.segment, self.chunk, filled)
        self.rows.append(row)
        return row

    def block(self, kind: BlockKind, pool: int, group: int, key: int, blocks: Sequence[int], **cells: int) -> None:
        self.add("block", kind=kind, pool=pool, group=group, request_key=key, blocks=[*blocks], **cells)

    def request(self, kind: RequestKind, key: int, **cells: int) -> None:
        self.add("request", kind=kind, request_key=key, **cells)

    def name(self, key: int, value: str, kind: NameKind = NameKind.EXTERNAL) -> None:
        self.add("names", kind=kind, key=key, value=value)

    def boundary(self, kind: StepKind, free_blocks: Sequence[int], cached_hashes: Sequence[int], **cells: int) -> None:
        counts = {"running": 0, "waiting": 0, "deferred_blocks": 0, "scheduled_tokens": 0} | cells
        self.add(
            "step",
            kind=kind,
            free_blocks=[*free_blocks],
            cached_hashes=[*cached_hashes],
            **counts,
        )

    def hand_over(self) -> None:
        """End a chunk, as the recorder does at a step boundary."""
        self.chunk += 1
        self.chunk_first_step = self.step

    def drop_chunk(self) -> int:
        """Lose what was recorded since the last hand-over; return the first step that lost."""
        kept = [row for row in self.rows if row.chunk != self.chunk]
        self.lost_rows += len(self.rows) - len(kept)
        self.rows = kept
        first_step = self.chunk_first_step
        self.hand_over()
        return first_step


def group_manifest(group: int, pool: int = 0, block_tokens: int = 4, **more: Any) -> GroupManifest:
    return GroupManifest(
        group=group,
        pool=pool,
        spec_kind="FullAttentionSpec",
        manager="FullAttentionManager",
        layers=(f"layers.{group}",),
        block_tokens=block_tokens,
        **more,
    )


SETTINGS = EngineSettings(
    model="tiny/model",
    architecture="TinyForCausalLM",
    dtype="bfloat16",
    cache_dtype="auto",
    max_model_len_tokens=4096,
    max_batched_tokens=64,
    max_in_flight_tokens=64,
    lookahead_tokens=0,
    max_num_seqs=16,
    scheduler_block_tokens=4,
    prefix_caching=True,
    chunked_prefill=True,
    reserve_full_prompt=True,
    watermark_blocks=0,
    async_scheduling=False,
    policy="fcfs",
)


def process_manifest(
    pool_blocks: Sequence[int] = (16,),
    groups: Sequence[GroupManifest] = (group_manifest(0),),
    started: int = 1,
    rank: int = 0,
    role: str = "engine",
) -> ProcessManifest:
    return ProcessManifest(
        vstate_version="0.1.0",
        vllm_version="0.32.0",
        role=role,
        engine_id=f"engine-{started}",
        data_parallel_rank=rank,
        pid=started,
        clock=ClockAnchor(boot_id="boot", monotonic_ns=started, wall_ns=started),
        scheduler_class="vllm.v1.core.sched.scheduler.Scheduler",
        anchors=(),
        settings=SETTINGS,
        pools=tuple(
            PoolManifest(
                pool=index,
                num_blocks=blocks,
                block_bytes=BLOCK_BYTES,
                total_bytes=blocks * BLOCK_BYTES,
                hash_block_tokens=4,
                caching=True,
            )
            for index, blocks in enumerate(pool_blocks)
        ),
        groups=tuple(groups),
    )


def run_manifest() -> RunManifest:
    machine = Machine(cpus=2, memory_bytes=1, architecture="x86_64", python="3.11")
    return RunManifest(
        vstate_version="0.1.0",
        created_wall_ns=1,
        engine="scheduler",
        model="tiny/launched",
        workload="smoke",
        seed=0,
        machine=machine,
    )


def write_run(
    folder: Path,
    rows: Sequence[Row],
    manifest: ProcessManifest,
    *,
    closed: bool = True,
    lost_rows: int = 0,
    launched: bool = True,
) -> Path:
    """Write a run with one process and return its folder."""
    if launched:
        folder.mkdir(exist_ok=True)
        write_manifest(folder / RUN_FILE, run_manifest())
    write_process(folder, rows, manifest, closed=closed, lost_rows=lost_rows)
    return folder


def write_process(
    folder: Path,
    rows: Sequence[Row],
    manifest: ProcessManifest,
    *,
    closed: bool = True,
    lost_rows: int = 0,
) -> Path:
    """Write one process into a run and return the folder of the process."""
    rank = manifest.data_parallel_rank
    name = f"{manifest.role}-dp{rank}-pp0-tp0-{manifest.pid}-{manifest.clock.monotonic_ns}"
    process = folder / EVENTS_FOLDER / name
    process.mkdir(parents=True, exist_ok=True)
    if closed:
        counts = {table: sum(row.table == table for row in rows) for table in TABLES}
        segments = max((row.segment for row in rows), default=0)
        closing = ClosingCounts(rows=counts, segments=segments, lost_chunks=int(lost_rows > 0), lost_rows=lost_rows)
        manifest = manifest.model_copy(update={"closing": closing})
    write_manifest(process / PROCESS_FILE, manifest)
    write_streams(process, rows)
    return process


def write_streams(process: Path, rows: Sequence[Row]) -> None:
    """Write rows as streams: one file per table and segment, one batch per chunk."""
    by_file = sorted(rows, key=lambda row: (row.table, row.segment, row.seq))
    for (table, segment), in_file in groupby(by_file, key=lambda row: (row.table, row.segment)):
        schema = TABLES[table].schema()
        path = process / f"{table}-{segment:04d}.arrows"
        with (
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_stream(sink, schema, options=OPTIONS) as stream,
        ):
            for _, in_chunk in groupby(in_file, key=lambda row: row.chunk):
                stream.write_batch(record_batch([row.cells for row in in_chunk], schema))


def renumbered(rows: Sequence[Row]) -> list[Row]:
    """Number rows anew without holes, so that nothing but what they say tells of a missing one."""
    places = {seq: place for place, seq in enumerate(sorted({row.seq for row in rows}), 1)}
    return [row.changed(seq=places[row.seq]) for row in rows]


def renumber_streams(process: Path) -> None:
    """Number the rows of all streams of a process anew without holes."""
    tables = {path: _stream_table(path) for path in process.glob("*.arrows")}
    seqs = sorted({seq for table in tables.values() for seq in table["seq"].to_pylist()})
    places = {seq: place for place, seq in enumerate(seqs, 1)}
    for path, table in tables.items():
        position = table.schema.get_field_index("seq")
        numbers = pa.array([places[seq] for seq in table["seq"].to_pylist()], pa.int64())
        changed = table.set_column(position, table.schema.field(position), numbers)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema, options=OPTIONS) as stream:
            stream.write_table(changed)


def _stream_table(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as source:
        return pa.ipc.open_stream(source).read_all()


def record_batch(cells: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column in schema:
        values = [row[column.name] for row in cells]
        plain = [int(value) if isinstance(value, IntEnum) else value for value in values]
        columns.append(pa.array(plain, column.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def stream(run: Path, name: str) -> Path:
    """A stream of a run with one process."""
    (process,) = (run / EVENTS_FOLDER).iterdir()
    return process / name


def cut(path: Path, share: float) -> None:
    """Leave only the first part of a stream."""
    data = path.read_bytes() if path.exists() else b""
    path.write_bytes(data[: int(len(data) * share)])


def cut_bytes(path: Path, count: int) -> None:
    """Take the last bytes of a stream away."""
    path.write_bytes(path.read_bytes()[:-count])


def serious(summary: Summary) -> list[Finding]:
    """Findings that fail a run."""
    return [finding for finding in summary.findings if finding.severity != "info"]
