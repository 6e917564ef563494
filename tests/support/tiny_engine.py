"""A tiny engine that allocates, shares, evicts and preempts, and records all of it legally.

It imitates what vLLM's scheduler and pools do to blocks, not how they decide: decisions are
drawn from a seeded generator.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from support.tiny_pool import NONE, GroupSpec, TinyPool, TinyRequest
from support.traces import TraceLog, group_manifest, process_manifest
from vstate.schemas.manifests import ProcessManifest
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.estimate import EstimateScope, EstimateSource, EstimateVerdict
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.tables.snapshot import SnapshotKind
from vstate.schemas.tables.step import StepKind
from vstate.schemas.vocabulary import Holder


class TinyEngine:
    """Runs requests over pools and groups; each step leaves the books in the log."""

    def __init__(self, pool_blocks: tuple[int, ...], groups: tuple[GroupSpec, ...], seed: int = 0) -> None:
        self.log = TraceLog()
        self.random = Random(seed)
        self.pool_blocks = pool_blocks
        self.groups = groups
        self.pools = [TinyPool(i, blocks, self.log) for i, blocks in enumerate(pool_blocks)]
        self.waiting: list[TinyRequest] = []
        self.running: list[TinyRequest] = []
        self.deferred: list[tuple[int, list[int]]] = []
        self.retained: list[tuple[int, list[int]]] = []
        self.pinned: list[tuple[int, list[int]]] = []
        self.requests = 0
        self.snapshot()

    @property
    def manifest(self) -> ProcessManifest:
        groups = [
            group_manifest(index, spec.pool, spec.block_tokens, window_tokens=spec.window_tokens)
            for index, spec in enumerate(self.groups)
        ]
        return process_manifest(self.pool_blocks, groups)

    # What a client does

    def arrive(self, prompt: int, output: int, family: int = 0) -> TinyRequest:
        request = TinyRequest(self.requests, family, prompt, output, tables=[{} for _ in self.groups])
        self.requests += 1
        self.log.name(request.key, f"req-{request.key}")
        self.log.request(RequestKind.ARRIVE, request.key, **request.lengths)
        self.waiting.append(request)
        return request

    def abort(self, request: TinyRequest) -> None:
        self.log.request(RequestKind.ABORT, request.key, **request.lengths)
        (self.running if request in self.running else self.waiting).remove(request)
        self._release_all(request)

    # Steps

    def step(self, chunk: int = 8, *, defer: bool = False) -> None:
        self.schedule(chunk)
        self.update(defer=defer)

    def schedule(self, chunk: int = 8) -> None:
        self.log.step += 1
        scheduled: dict[int, int] = {}
        for request in list(self.running):
            if request not in self.running:
                continue
            tokens = min(chunk, request.total - request.computed)
            while not self._allocate(request, tokens):
                victim = self.running[-1]
                scheduled.pop(victim.key, None)
                self._preempt(victim)
                if victim is request:
                    break
            if request in self.running:
                scheduled[request.key] = tokens
        admitted = self._admit(chunk, scheduled)
        for request, kind, hit in admitted:
            tokens = scheduled[request.key]
            cells = request.lengths | {"scheduled_tokens": tokens, "hit_tokens": hit}
            self.log.request(kind, request.key, **cells)
        for request in self.running:
            if request.in_prefill and request.key in scheduled:
                tokens = scheduled[request.key]
                cells = request.lengths | {"scheduled_tokens": tokens}
                self.log.request(RequestKind.PREFILL_CHUNK, request.key, **cells)
                request.in_prefill = request.computed + tokens < request.total
        self._scheduled = scheduled
        self._boundary(StepKind.SCHEDULED)

    def update(self, *, defer: bool = False) -> None:
        for pool, blocks in self.retained:
            self.pools[pool].release(BlockKind.FREE, blocks, NONE, Holder.COPY_ON_WRITE)
        self.retained.clear()
        for request in list(self.running):
            request.computed += self._scheduled.get(request.key, 0)
            self._cache_full_blocks(request)
            if request.computed == request.total:
                request.produced += 1
                if request.produced == request.output:
                    self.log.request(RequestKind.FINISH, request.key, **request.lengths)
                    self.running.remove(request)
                    self._release_all(request, defer=defer)
        self._boundary(StepKind.COMPLETED)

    def drain(self, chunk: int = 8) -> None:
        """Run until nothing is left, and let go of what the engine itself holds."""
        for _ in range(500):
            if not self.running and not self.waiting:
                break
            self.step(chunk)
        assert not self.running and not self.waiting, "the tiny engine is stuck"
        self.drain_deferred()
        self.unpin_all()
        self.step()

    def drain_deferred(self) -> None:
        for pool, blocks in self.deferred:
            self.pools[pool].release(BlockKind.FREE, blocks, NONE, Holder.DEFERRED_FREE)
        self.deferred.clear()

    # What else may happen to blocks

    def copy_on_write(self) -> bool:
        """Give a running request its own copy of one of its blocks."""
        for request in self.running:
            for group, spec in enumerate(self.groups):
                pool, table = self.pools[spec.pool], request.tables[group]
                if table and pool.free:
                    position = max(table)
                    source = table[position]
                    (copy,) = pool.take(1, group, request.key)
                    pool.hold(BlockKind.PIN, [source, copy], NONE, Holder.COPY_ON_WRITE)
                    pool.release(BlockKind.UNPIN, [source], group, request.key)
                    table[position] = copy
                    self.retained.append((spec.pool, [source, copy]))
                    return True
        return False

    def move_hashes(self) -> bool:
        """Point the hashes of a block to one without hashes."""
        for pool in self.pools:
            source = next((block for block in pool.hashes if pool.references[block]), None)
            copies = [b for b in pool.references if pool.references[b] and b not in pool.hashes]
            if source is not None and copies:
                keys = sorted(pool.hashes[source])
                pool.evict([source], BlockKind.CACHE_REMOVE)
                for block_hash, group in keys:
                    pool.insert(copies[0], block_hash, group, NONE, NONE)
                pool.record(BlockKind.MOVE, NONE, NONE, [source, copies[0]])
                return True
        return False

    def pin(self) -> bool:
        """Let a connector hold a cached block."""
        for pool in self.pools:
            if pool.hashes:
                block = min(pool.hashes)
                pool.hold(BlockKind.PIN, [block], NONE, Holder.PINNED)
                self.pinned.append((pool.index, [block]))
                return True
        return False

    def unpin_all(self) -> None:
        for pool, blocks in self.pinned:
            self.pools[pool].release(BlockKind.UNPIN, blocks, NONE, Holder.PINNED)
        self.pinned.clear()

    def evict_some(self) -> None:
        for pool in self.pools:
            pool.evict(sorted(pool.hashes)[:2])

    def reset(self) -> bool:
        free = all(not any(pool.references.values()) for pool in self.pools)
        if free:
            for pool in self.pools:
                pool.reset()
        return free

    # Segments, chunks and snapshots

    def rotate(self) -> None:
        self.log.hand_over()
        self.log.segment += 1
        self.snapshot()

    def lose_chunk(self) -> None:
        """Lose what happened since the last hand-over, and start again from a snapshot."""
        self.snapshot(self.log.drop_chunk())

    def snapshot(self, lost_from_step: int = NONE) -> None:
        add = self.log.add
        add("snapshot", kind=SnapshotKind.BEGIN, lost_from_step=lost_from_step)
        holder = SnapshotKind.HOLDER
        for request in [*self.running, *self.waiting]:
            for group, table in enumerate(request.tables):
                if table:
                    pool, blocks = self.groups[group].pool, list(table.values())
                    cells = {"pool": pool, "group": group, "request_key": request.key}
                    add("snapshot", kind=holder, blocks=blocks, **cells)
        # Like vLLM's tracer, a snapshot cannot tell copies under way from pins.
        for key, held in (
            (Holder.DEFERRED_FREE, self.deferred),
            (Holder.PINNED, self.retained + self.pinned),
        ):
            for pool, blocks in held:
                add("snapshot", kind=holder, pool=pool, request_key=int(key), blocks=blocks)
        for pool in self.pools:
            for block, keys in pool.hashes.items():
                for block_hash, group in sorted(keys):
                    cells = {"pool": pool.index, "group": group, "block_hash": block_hash}
                    add("snapshot", kind=SnapshotKind.HASH, blocks=[block], **cells)
            free = len(pool.free)
            add("snapshot", kind=SnapshotKind.POOL, pool=pool.index, free_blocks=free)
        for request in [*self.running, *self.waiting]:
            add("snapshot", kind=SnapshotKind.REQUEST, request_key=request.key, **request.lengths)
        add("snapshot", kind=SnapshotKind.END)
        self.log.hand_over()

    # Inside

    def _boundary(self, kind: StepKind) -> None:
        self.log.boundary(
            kind,
            [len(pool.free) for pool in self.pools],
            [pool.cached for pool in self.pools],
            running=len(self.running),
            waiting=len(self.waiting),
            deferred_blocks=sum(len(blocks) for _, blocks in self.deferred),
        )

    def _admit(self, chunk: int, scheduled: dict[int, int]) -> list[tuple[TinyRequest, RequestKind, int]]:
        admitted = []
        while self.waiting and len(self.running) < 4:
            request = self.waiting[0]
            hit = self._hit(request)
            tokens = min(chunk, request.total - hit)
            hits = [self._hit_blocks(request, group, hit) for group in range(len(self.groups))]
            held = [
                sum(self.pools[spec.pool].references[block] > 0 for block in blocks.values())
                for spec, blocks in zip(self.groups, hits, strict=True)
            ]
            whole = [len(spec.kept(hit, request.total)) for spec in self.groups]
            before = [len(pool.free) for pool in self.pools]
            fits = self._allocate(request, tokens, hit, hits)
            for group, spec in enumerate(self.groups):
                self.log.add(
                    "estimate",
                    request_key=request.key,
                    attempt=request.attempt + 1,
                    source=EstimateSource.STOCK,
                    scope=EstimateScope.PREFILL,
                    verdict=EstimateVerdict.ADMITTED if fits else EstimateVerdict.REFUSED,
                    pool=spec.pool,
                    group=group,
                    new_blocks=max(0, whole[group] - held[group] - self.random.randrange(2)),
                    held_blocks=held[group],
                    free_blocks=before[spec.pool],
                )
            if not fits:
                self.log.request(RequestKind.REFUSE, request.key, **request.lengths)
                break
            self.waiting.pop(0)
            kind = RequestKind.RESUME if request.attempt else RequestKind.ADMIT
            request.attempt += 1
            request.computed = hit
            request.in_prefill = True
            self.running.append(request)
            scheduled[request.key] = tokens
            admitted.append((request, kind, hit))
        return admitted

    def _hit(self, request: TinyRequest) -> int:
        """Tokens, a whole number of blocks of every group, whose state is cached for all groups."""
        unit = max(spec.block_tokens for spec in self.groups)
        for tokens in range((request.total - 1) // unit * unit, 0, -unit):
            found = [self._hit_blocks(request, group, tokens) for group in range(len(self.groups))]
            if all(None not in blocks.values() for blocks in found):
                return tokens
        return 0

    def _hit_blocks(self, request: TinyRequest, group: int, tokens: int) -> dict[int, int | None]:
        spec = self.groups[group]
        positions = spec.kept(tokens, tokens)
        return {
            position: self.pools[spec.pool].find((self._hash(request, group, position), group))
            for position in positions
        }

    def _hash(self, request: TinyRequest, group: int, position: int) -> int:
        shared = (position + 1) * self.groups[group].block_tokens <= request.prompt
        owner = request.family if shared else 1_000 + request.key
        return owner * 1_000_000 + position

    def _allocate(
        self,
        request: TinyRequest,
        tokens: int,
        hit: int | None = None,
        hits: list[dict[int, int | None]] | None = None,
    ) -> bool:
        computed = request.computed if hit is None else hit
        needed: Counter[int] = Counter()
        missing = []
        for group, spec in enumerate(self.groups):
            known = {*request.tables[group], *(hits[group] if hits else ())}
            positions = [p for p in spec.kept(computed, computed + tokens) if p not in known]
            missing.append(positions)
            needed[spec.pool] += len(positions)
            if hits:
                references = self.pools[spec.pool].references
                needed[spec.pool] += sum(not references[b] for b in hits[group].values() if b)
        for group, spec in enumerate(self.groups):
            # vLLM drops what lies below a window before it looks for room.
            kept = spec.kept(computed, computed + tokens)
            below = [p for p in request.tables[group] if p not in kept]
            if below:
                blocks = [request.tables[group].pop(p) for p in below]
                self.pools[spec.pool].release(BlockKind.FREE, blocks, group, request.key)
        if any(count > len(self.pools[pool].free) for pool, count in needed.items()):
            return False
        for group, spec in enumerate(self.groups):
            found = {p: b for p, b in (hits[group] if hits else {}).items() if b is not None}
            if found:
                blocks = list(found.values())
                self.pools[spec.pool].hold(BlockKind.TOUCH, blocks, group, request.key)
                request.tables[group] |= found
                request.hashed |= {(group, position) for position in found}
        for group, spec in enumerate(self.groups):
            if missing[group]:
                blocks = self.pools[spec.pool].take(len(missing[group]), group, request.key)
                request.tables[group] |= dict(zip(missing[group], blocks, strict=True))
        return True

    def _cache_full_blocks(self, request: TinyRequest) -> None:
        for group, spec in enumerate(self.groups):
            for position, block in request.tables[group].items():
                end = (position + 1) * spec.block_tokens
                if end <= request.computed and (group, position) not in request.hashed:
                    request.hashed.add((group, position))
                    block_hash = self._hash(request, group, position)
                    pool = self.pools[spec.pool]
                    if block in pool.hashes:
                        pool.evict([block], BlockKind.CACHE_REMOVE)
                    pool.insert(block, block_hash, group, request.key, end)

    def _preempt(self, request: TinyRequest) -> None:
        self.log.request(RequestKind.PREEMPT, request.key, **request.lengths)
        self.running.remove(request)
        self._release_all(request)
        request.computed = 0
        self.waiting.insert(0, request)

    def _release_all(self, request: TinyRequest, *, defer: bool = False) -> None:
        for group, spec in enumerate(self.groups):
            blocks = list(request.tables[group].values())[::-1]
            request.tables[group] = {}
            if not blocks:
                continue
            pool = self.pools[spec.pool]
            if defer:
                pool.hold(BlockKind.PIN, blocks, NONE, Holder.DEFERRED_FREE)
                pool.release(BlockKind.UNPIN, blocks, group, request.key)
                self.deferred.append((spec.pool, blocks))
            else:
                pool.release(BlockKind.FREE, blocks, group, request.key)
        request.hashed.clear()
