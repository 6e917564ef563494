"""Replay by a plain loop over rows, to compare the SQL with. It shares no code with it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from support.traces import Row
from vstate.schemas.manifests import ProcessManifest
from vstate.schemas.tables.block import REFERENCE_DELTA, BlockKind
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.tables.snapshot import SnapshotKind

Attempt = tuple[int, int]
References = Counter[tuple[int, int]]
Hashes = dict[tuple[int, int], set[tuple[int, int]]]


@dataclass
class OracleReplay:
    """What the loop saw.

    Attributes:
        books: Per step row's seq and pool: (free blocks, cached hashes).
        peaks: Per (request, attempt), group and scope: the most blocks held.
    """

    books: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    peaks: dict[tuple[Attempt, int, str], int] = field(default_factory=dict)
    admitted: set[Attempt] = field(default_factory=set)


def replay_by_hand(rows: Sequence[Row], manifest: ProcessManifest) -> OracleReplay:
    """Replay rows in which nothing was lost but what snapshots tell of."""
    result = OracleReplay()
    references: References = Counter()
    hashes: Hashes = defaultdict(set)
    held: Counter[tuple[int, int]] = Counter()
    preempted: Counter[int] = Counter()
    prefill_end = _prefill_ends(rows)
    resets = False
    for row in sorted(rows, key=lambda row: row.seq):
        cells = row.cells
        if row.table == "snapshot":
            if cells["kind"] == SnapshotKind.BEGIN:
                resets = row.seq == 1 or cells["lost_from_step"] >= 0
            if resets:
                _restore(cells, references, hashes, held)
        elif row.table == "request":
            key = (cells["request_key"], cells["attempt"])
            if cells["kind"] == RequestKind.PREEMPT:
                preempted[cells["request_key"]] += 1
            elif cells["kind"] in (RequestKind.ADMIT, RequestKind.RESUME):
                result.admitted.add(key)
        elif row.table == "step":
            for index, pool in enumerate(manifest.pools):
                busy = sum(n > 0 for (p, _), n in references.items() if p == index)
                found = {k for (p, _), keys in hashes.items() if p == index for k in keys}
                result.books[row.seq, index] = (pool.num_blocks - 1 - busy, len(found))
        elif row.table == "block":
            _apply(cells, references, hashes)
            delta = REFERENCE_DELTA.get(BlockKind(cells["kind"]), 0) * len(cells["blocks"])
            request = cells["request_key"]
            if delta and request >= 0:
                held[request, cells["group"]] += delta
                attempt = (request, preempted[request] + 1)
                end = prefill_end.get(attempt, row.cells["step"])
                scopes = ("life", "prefill") if cells["step"] <= end else ("life",)
                for scope in scopes if delta > 0 else ():
                    place = (attempt, cells["group"], scope)
                    now = held[request, cells["group"]]
                    result.peaks[place] = max(result.peaks.get(place, 0), now)
    return result


def _prefill_ends(rows: Sequence[Row]) -> dict[Attempt, int]:
    ends: dict[Attempt, int] = {}
    for row in rows:
        cells = row.cells
        if row.table == "request" and cells["kind"] == RequestKind.PREFILL_CHUNK:
            if cells["computed_tokens"] + cells["scheduled_tokens"] >= cells["total_tokens"]:
                ends.setdefault((cells["request_key"], cells["attempt"]), cells["step"])
    return ends


def _restore(cells: dict[str, Any], references: References, hashes: Hashes, held: Counter[tuple[int, int]]) -> None:
    if cells["kind"] == SnapshotKind.BEGIN:
        references.clear()
        hashes.clear()
        held.clear()
    elif cells["kind"] == SnapshotKind.HOLDER:
        for block in cells["blocks"]:
            references[cells["pool"], block] += 1
            held[cells["request_key"], cells["group"]] += 1
    elif cells["kind"] == SnapshotKind.HASH:
        hashes[cells["pool"], cells["blocks"][0]].add((cells["block_hash"], cells["group"]))


def _apply(cells: dict[str, Any], references: References, hashes: Hashes) -> None:
    kind, pool = BlockKind(cells["kind"]), cells["pool"]
    if kind is BlockKind.RESET:
        for place in [place for place in hashes if place[0] == pool]:
            del hashes[place]
    for block in cells["blocks"]:
        references[pool, block] += REFERENCE_DELTA.get(kind, 0)
        if kind is BlockKind.CACHE_INSERT:
            hashes[pool, block].add((cells["block_hash"], cells["group"]))
        elif kind in (BlockKind.EVICT, BlockKind.CACHE_REMOVE):
            hashes.pop((pool, block), None)
