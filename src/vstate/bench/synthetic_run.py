"""Writes a run of any size that no engine made: steady traffic, each request with the same life, books that add up.

Requests arrive one per step and live for `LIFE_STEPS` steps. Each takes the blocks of the request `SLOTS` before it,
whose hashes are evicted then, so that allocation, caching, eviction and release all go on for the whole run. It is
for measuring readers; what it says of an engine is made up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vstate.schemas.component import StateComponent
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
from vstate.schemas.tables import TABLES
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.estimate import EstimateScope, EstimateSource, EstimateVerdict
from vstate.schemas.tables.names import NameKind
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.tables.snapshot import SnapshotKind
from vstate.schemas.tables.step import StepKind
from vstate.schemas.vocabulary import (
    NOT_APPLICABLE,
    Eviction,
    Lifetime,
    Mutability,
    Owner,
    Shareable,
    StateClass,
    Unit,
)

BLOCK_TOKENS = 64
PROMPT_BLOCKS = 8
PROMPT_TOKENS = BLOCK_TOKENS * PROMPT_BLOCKS
LIFE_STEPS = 64
SLOTS = 4 * LIFE_STEPS
"""Requests whose blocks fit at once; three quarters of them are cached and free."""
KEY_BLOCKS = PROMPT_BLOCKS + 1
REQUEST_BLOCKS = KEY_BLOCKS + 1
STEPS_PER_BATCH = 2048
STEP_NS = 20_000_000

_ARRIVAL_ROWS = 2 + 1 + 1 + 2 + 1 + 2 + 1 + PROMPT_BLOCKS + 1
"""Two names, arrival, admission, two estimates, eviction, two allocations, a prefill, an insert per block and state."""
_FINISH_ROWS = 3
ROWS_PER_REQUEST = _ARRIVAL_ROWS + 1 + _FINISH_ROWS + 2
"""Rows of one request's life, with its own two rows of steps."""

Cells = Mapping[str, Any]
Steps = np.ndarray[Any, np.dtype[np.int64]]


def write_synthetic_run(folder: Path, events: int) -> int:
    """Write a run of about ``events`` rows and return how many it has.

    Raises:
        OSError: The folder cannot be made.
    """
    requests = max(events // ROWS_PER_REQUEST, 1)
    process = folder / EVENTS_FOLDER / "engine-dp0-pp0-tp0-1-1"
    process.mkdir(parents=True)
    rows = dict.fromkeys(TABLES, 0)
    sinks: dict[str, Any] = {}
    try:
        for table, batch in _batches(requests):
            if table not in sinks:
                sinks[table] = pa.ipc.new_stream(
                    str(process / f"{table}-0001.arrows"),
                    TABLES[table].schema(),
                    options=pa.ipc.IpcWriteOptions(compression="zstd"),
                )
            sinks[table].write_batch(batch)
            rows[table] += batch.num_rows
    finally:
        for sink in sinks.values():
            sink.close()
    closing = ClosingCounts(rows=rows, segments=1, lost_chunks=0, lost_rows=0)
    write_manifest(process / PROCESS_FILE, _process_manifest(closing))
    machine = Machine(cpus=1, memory_bytes=0, architecture="none", python="none")
    write_manifest(
        folder / RUN_FILE,
        RunManifest(
            vstate_version="synthetic",
            created_wall_ns=1,
            engine="synthetic",
            model="synthetic",
            workload="steady",
            seed=0,
            machine=machine,
        ),
    )
    return sum(rows.values())


class _Clock:
    """Numbers of events: how many there were before each step, by what happens in a step."""

    SNAPSHOT_ROWS = 3

    def __init__(self, requests: int) -> None:
        self._requests = requests

    def before(self, steps: Steps) -> Steps:
        """Return the number of the last event before each of ``steps``, which count from 1."""
        done = steps - 1
        arrived = np.minimum(done, self._requests)
        grown = np.clip(done - 1, 0, self._requests)
        finished = np.clip(done - LIFE_STEPS, 0, self._requests)
        number: Steps = self.SNAPSHOT_ROWS + 2 * done + _ARRIVAL_ROWS * arrived + grown + _FINISH_ROWS * finished
        return number


def _batches(requests: int) -> Iterator[tuple[str, pa.RecordBatch]]:
    clock = _Clock(requests)
    for kind in (SnapshotKind.BEGIN, SnapshotKind.POOL, SnapshotKind.END):
        cells: dict[str, Any] = {
            "seq": [1 + (0, 1, 5).index(kind)],
            "step": [0],
            "kind": [int(kind)],
            "block_hash": [0],
        }
        if kind is SnapshotKind.POOL:
            cells |= {"pool": [0], "free_blocks": [SLOTS * REQUEST_BLOCKS]}
        yield "snapshot", _batch("snapshot", 1, cells)
    last = requests + LIFE_STEPS
    for first in range(1, last + 1, STEPS_PER_BATCH):
        steps = np.arange(first, min(first + STEPS_PER_BATCH, last + 1), dtype=np.int64)
        for table, parts in _rows_of_steps(steps, clock, requests).items():
            yield table, _in_order(table, parts)


def _rows_of_steps(steps: Steps, clock: _Clock, requests: int) -> dict[str, list[Cells]]:
    parts: dict[str, list[Cells]] = {}
    before = clock.before(steps)
    arriving, growing = steps <= requests, (steps > 1) & (steps <= requests + 1)
    finishing = steps > LIFE_STEPS

    def put(table: str, chosen: Any, offset: Any, cells: Callable[[Steps], dict[str, Any]]) -> None:
        at = steps[chosen]
        if at.size:
            place = offset[chosen] if isinstance(offset, np.ndarray) else offset
            parts.setdefault(table, []).append({"seq": before[chosen] + place, "step": at} | cells(at))

    for number, (table, cells) in enumerate(_arrival(), 1):
        put(table, arriving, number, cells)
    after = np.where(arriving, _ARRIVAL_ROWS, 0) + 1
    put("block", growing, after, lambda at: _blocks(BlockKind.ALLOC, at - 2, 0, _slots(at - 2, PROMPT_BLOCKS, 1)))
    after = after + growing
    live = np.minimum(steps, requests) - np.maximum(steps - 1 - LIFE_STEPS, 0)
    held = live * REQUEST_BLOCKS - arriving
    cached = (PROMPT_BLOCKS + 1) * np.minimum(np.minimum(steps, requests), SLOTS)
    put("step", steps > 0, after, lambda at: _step(StepKind.SCHEDULED, at, live, held, cached))
    for offset, (table, cells) in enumerate(_finish(), 1):
        put(table, finishing, after + offset, cells)
    gone = live - finishing
    left = held - finishing * REQUEST_BLOCKS
    after = after + np.where(finishing, _FINISH_ROWS, 0) + 1
    put("step", steps > 0, after, lambda at: _step(StepKind.COMPLETED, at, gone, left, cached))
    return parts


Row = tuple[str, Callable[[Steps], dict[str, Any]]]


def _arrival() -> Iterator[Row]:
    """Yield the rows of an arrival in order; request ``r`` arrives in step ``r + 1``."""
    for kind in (NameKind.REQUEST, NameKind.EXTERNAL):
        yield "names", partial(_named, kind)
    yield "request", lambda at: _request(RequestKind.ARRIVE, at - 1, at, attempt=0)
    yield "block", lambda at: _evicted(at - 1)
    yield "estimate", partial(_estimated, 0, PROMPT_BLOCKS)
    yield "estimate", partial(_estimated, 1, 1)
    yield "block", lambda at: _blocks(BlockKind.ALLOC, at - 1, 0, _slots(at - 1, 0, PROMPT_BLOCKS))
    yield "block", lambda at: _blocks(BlockKind.ALLOC, at - 1, 1, _slots(at - 1, KEY_BLOCKS, 1))
    yield "request", lambda at: _request(RequestKind.ADMIT, at - 1, at, hit_tokens=0, scheduled_tokens=PROMPT_TOKENS)
    for block in range(PROMPT_BLOCKS):
        yield "block", partial(_inserted, 0, block, BLOCK_TOKENS * (block + 1))
    yield "block", partial(_inserted, 1, KEY_BLOCKS, PROMPT_TOKENS)
    yield "request", lambda at: _request(RequestKind.PREFILL_CHUNK, at - 1, at, scheduled_tokens=PROMPT_TOKENS)


def _named(kind: NameKind, at: Steps) -> dict[str, Any]:
    return {"kind": int(kind), "key": at - 1, "value": [f"r{key}" for key in at - 1]}


def _estimated(group: int, blocks: int, at: Steps) -> dict[str, Any]:
    return {
        "request_key": at - 1,
        "attempt": 1,
        "source": int(EstimateSource.STOCK),
        "scope": int(EstimateScope.PREFILL),
        "verdict": int(EstimateVerdict.ADMITTED),
        "pool": 0,
        "group": group,
        "new_blocks": blocks,
        "held_blocks": 0,
        "free_blocks": 0,
    }


def _finish() -> Iterator[Row]:
    def key(at: Steps) -> Steps:
        return at - 1 - LIFE_STEPS

    yield "block", lambda at: _blocks(BlockKind.FREE, key(at), 0, _slots(key(at), 0, KEY_BLOCKS))
    yield "block", lambda at: _blocks(BlockKind.FREE, key(at), 1, _slots(key(at), KEY_BLOCKS, 1))
    total = PROMPT_TOKENS + LIFE_STEPS
    yield "request", lambda at: _request(RequestKind.FINISH, key(at), at, total_tokens=total, computed_tokens=total - 1)


def _slots(keys: Steps, first: int, count: int) -> np.ndarray[Any, Any]:
    """Return blocks of requests as a matrix: ``count`` of each from its ``first``."""
    return 1 + (keys % SLOTS)[:, None] * REQUEST_BLOCKS + first + np.arange(count)[None, :]


def _blocks(kind: BlockKind, keys: Steps, group: int, blocks: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {"kind": int(kind), "pool": 0, "group": group, "request_key": keys, "block_hash": 0, "blocks": blocks}


def _evicted(keys: Steps) -> dict[str, Any]:
    """Blocks of the request whose place is taken; the first of all take nobody's and evict an empty list."""
    chosen = [*range(PROMPT_BLOCKS), KEY_BLOCKS]
    blocks = 1 + (keys % SLOTS)[:, None] * REQUEST_BLOCKS + np.array(chosen)[None, :]
    cells = _blocks(BlockKind.EVICT, keys, NOT_APPLICABLE, blocks)
    return cells | {"request_key": NOT_APPLICABLE, "empty": keys < SLOTS}


def _inserted(group: int, block: int, position: int, at: Steps) -> dict[str, Any]:
    keys = at - 1
    cells = _blocks(BlockKind.CACHE_INSERT, keys, group, _slots(keys, block, 1))
    return cells | {
        "position_tokens": position,
        "verified_tokens": position,
        "block_hash": keys * REQUEST_BLOCKS + block + 1,
    }


def _request(kind: RequestKind, keys: Steps, at: Steps, **cells: Any) -> dict[str, Any]:
    told = {"attempt": 1, "total_tokens": PROMPT_TOKENS, "computed_tokens": 0} | cells
    return told | {
        "kind": int(kind),
        "time_ns": at * STEP_NS,
        "request_key": keys,
        "prompt_tokens": PROMPT_TOKENS,
        "max_tokens": LIFE_STEPS,
        "media_items": 0,
    }


def _step(kind: StepKind, at: Steps, live: Any, held: Any, cached: Any) -> dict[str, Any]:
    return {
        "kind": int(kind),
        "time_ns": at * STEP_NS + (kind is StepKind.COMPLETED),
        "running": live,
        "waiting": 0,
        "deferred_blocks": 0,
        "scheduled_tokens": PROMPT_TOKENS if kind is StepKind.SCHEDULED else 0,
        "free_blocks": (SLOTS * REQUEST_BLOCKS - held)[:, None],
        "cached_hashes": cached[:, None],
    }


def _in_order(table: str, parts: list[Cells]) -> pa.RecordBatch:
    """Put the rows of several kinds together in the order of their numbers."""
    batches = [_batch(table, len(part["seq"]), part) for part in parts]
    whole = pa.Table.from_batches(batches).combine_chunks()
    return whole.sort_by("seq").combine_chunks().to_batches()[0]


def _batch(table: str, count: int, cells: Cells) -> pa.RecordBatch:
    columns = []
    schema = TABLES[table].schema()
    for field in schema:
        value = cells.get(field.name, NOT_APPLICABLE)
        if pa.types.is_list(field.type):
            columns.append(_lists(field, count, cells))
        elif isinstance(value, list):
            columns.append(pa.array(value, field.type))
        else:
            columns.append(pa.array(np.broadcast_to(value, (count,)), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _lists(field: pa.Field, count: int, cells: Cells) -> pa.Array:
    if field.name not in cells:
        return pa.array([[]] * count, field.type)
    matrix = np.ascontiguousarray(cells[field.name], dtype=np.int32)
    lengths = np.full(count, matrix.shape[1])
    if "empty" in cells:
        lengths[cells["empty"]] = 0
        matrix = matrix[~cells["empty"]]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(matrix.ravel()), type=field.type)


def _process_manifest(closing: ClosingCounts) -> ProcessManifest:
    blocks = SLOTS * REQUEST_BLOCKS + 1
    pool = PoolManifest(
        pool=0,
        num_blocks=blocks,
        block_bytes=4096,
        total_bytes=4096 * blocks,
        hash_block_tokens=BLOCK_TOKENS,
        caching=True,
    )
    return ProcessManifest(
        vstate_version="synthetic",
        vllm_version="none",
        role="engine",
        engine_id="1-1",
        pid=1,
        clock=ClockAnchor(boot_id="none", monotonic_ns=1, wall_ns=1),
        scheduler_class="synthetic",
        anchors=(),
        settings=_settings(),
        pools=(pool,),
        groups=(_group(0, StateClass.FULL_KV, BLOCK_TOKENS), _group(1, StateClass.RECURRENT, PROMPT_TOKENS)),
        closing=closing,
    )


def _settings() -> EngineSettings:
    return EngineSettings(
        model="synthetic",
        architecture="Synthetic",
        dtype="bfloat16",
        cache_dtype="auto",
        max_model_len_tokens=4096,
        max_batched_tokens=2 * PROMPT_TOKENS,
        max_in_flight_tokens=2 * PROMPT_TOKENS,
        lookahead_tokens=0,
        max_num_seqs=SLOTS,
        scheduler_block_tokens=PROMPT_TOKENS,
        prefix_caching=True,
        chunked_prefill=True,
        reserve_full_prompt=True,
        watermark_blocks=0,
        async_scheduling=False,
        policy="fcfs",
    )


def _group(index: int, state_class: StateClass, block_tokens: int) -> GroupManifest:
    state = state_class is StateClass.RECURRENT
    component = StateComponent(
        id=f"g{index}/target/{state_class}",
        state_class=state_class,
        owner=Owner.TARGET,
        pool=0,
        group=index,
        layers=("layer",),
        dtype="bfloat16",
        unit=Unit.REQUEST if state else Unit.TOKEN,
        useful_bytes_per_unit=4096 if state else 4096 // block_tokens,
        useful_bytes_per_block=4096,
        charged_bytes_per_block=4096,
        layer_block_bytes=(4096,),
        lifetime=Lifetime.REQUEST,
        mutability=Mutability.IN_PLACE if state else Mutability.APPEND_ONLY,
        eviction=Eviction.WITH_DEPENDENTS if state else Eviction.LRU,
        shareable=Shareable.AT_BOUNDARY if state else Shareable.ALWAYS,
        boundary_tokens=block_tokens,
    )
    return GroupManifest(
        group=index,
        pool=0,
        spec_kind="MambaSpec" if state else "FullAttentionSpec",
        manager="MambaManager" if state else "FullAttentionManager",
        layers=("layer",),
        block_tokens=block_tokens,
        state_mode="align" if state else "",
        components=(component,),
    )
