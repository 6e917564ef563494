"""The pieces of the tiny engine: groups, requests and block pools."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from support.traces import TraceLog
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.vocabulary import Holder

NONE = int(Holder.NOT_APPLICABLE)


@dataclass(frozen=True)
class GroupSpec:
    """A group; with a window it keeps the window's blocks, as a state the last two boundaries."""

    pool: int = 0
    block_tokens: int = 4
    window_tokens: int = 0
    state: bool = False

    def kept(self, computed: int, target: int) -> range:
        """Positions that must be resident to compute up to ``target`` tokens."""
        last = -(-target // self.block_tokens)
        if self.state:
            return range(max(0, computed // self.block_tokens - 1, last - 2), last)
        if self.window_tokens:
            return range(max(0, computed - self.window_tokens + 1) // self.block_tokens, last)
        return range(last)


@dataclass
class TinyRequest:
    """A request of the tiny engine."""

    key: int
    family: int
    prompt: int
    output: int
    computed: int = 0
    produced: int = 0
    attempt: int = 0
    in_prefill: bool = True
    tables: list[dict[int, int]] = field(default_factory=list)
    hashed: set[tuple[int, int]] = field(default_factory=set)

    @property
    def total(self) -> int:
        return self.prompt + self.produced

    @property
    def lengths(self) -> dict[str, int]:
        return {
            "attempt": self.attempt,
            "prompt_tokens": self.prompt,
            "max_tokens": self.output,
            "total_tokens": self.total,
            "computed_tokens": self.computed,
        }


class TinyPool:
    """A block pool that records every call."""

    def __init__(self, index: int, num_blocks: int, log: TraceLog) -> None:
        self.index = index
        self.log = log
        self.free = list(range(1, num_blocks))
        self.references: Counter[int] = Counter()
        self.hashes: dict[int, set[tuple[int, int]]] = {}

    @property
    def cached(self) -> int:
        return len(set().union(*self.hashes.values()))

    def find(self, key: tuple[int, int]) -> int | None:
        return next((block for block, keys in self.hashes.items() if key in keys), None)

    def record(self, kind: BlockKind, group: int, key: int, blocks: list[int], **cells: int) -> None:
        self.log.block(kind, self.index, group, key, blocks, **cells)

    def take(self, count: int, group: int, key: int) -> list[int]:
        blocks = [self.free.pop(0) for _ in range(count)]
        self.evict([block for block in blocks if block in self.hashes])
        self.references.update(blocks)
        self.record(BlockKind.ALLOC, group, key, blocks)
        return blocks

    def hold(self, kind: BlockKind, blocks: list[int], group: int, key: int) -> None:
        for block in blocks:
            if not self.references[block]:
                self.free.remove(block)
            self.references[block] += 1
        self.record(kind, group, key, blocks)

    def release(self, kind: BlockKind, blocks: list[int], group: int, key: int) -> None:
        self.record(kind, group, key, blocks)
        for block in blocks:
            self.references[block] -= 1
            if not self.references[block]:
                where = len(self.free) if block in self.hashes else 0
                self.free.insert(where, block)

    def insert(self, block: int, block_hash: int, group: int, key: int, position: int) -> None:
        self.hashes.setdefault(block, set()).add((block_hash, group))
        self.record(
            BlockKind.CACHE_INSERT,
            group,
            key,
            [block],
            block_hash=block_hash,
            position_tokens=position,
            verified_tokens=position,
        )

    def evict(self, blocks: list[int], kind: BlockKind = BlockKind.EVICT) -> None:
        if blocks:
            self.record(kind, NONE, NONE, blocks)
            for block in blocks:
                self.hashes.pop(block, None)

    def reset(self) -> None:
        self.hashes.clear()
        self.record(BlockKind.RESET, NONE, NONE, [])
