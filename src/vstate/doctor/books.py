"""The books of an engine at one boundary, and the first place where two sets of books differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vstate.inventory.from_vllm import pools_from_scheduler
from vstate.tracer.recorder import HASH_BYTES, fixed_hash
from vstate.tracer.siphash import siphash
from vstate.tracer.versions import encoder_entry_embeds
from vstate.tracer.wrapping import resident_ids

GROUP_BYTES = 4
"""A key of vLLM's prefix-cache map ends with its group (`kv_cache_utils.make_block_hash_with_group_id`)."""


@dataclass
class Books:
    """What is held by whom.

    Attributes:
        references: References of each block, by (pool, block); blocks without one are left out.
        hashes: Keyed hashes under which a block is found, by (pool, group, block).
        held: References of each live request, by (request id, group, block).
        encoder: Requests that use each entry of the encoder cache, and its embeddings.
        free_blocks: Free blocks of each pool.
    """

    references: Counter[tuple[int, int]] = field(default_factory=Counter)
    hashes: dict[tuple[int, int, int], frozenset[int]] = field(default_factory=dict)
    held: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    encoder: Counter[tuple[int, tuple[str, ...]]] = field(default_factory=Counter)
    free_blocks: tuple[int, ...] = ()


def engine_books(scheduler: Any, secret: bytes) -> Books:
    """Read the books from the engine's own tables; nothing that the tracer keeps is looked at."""
    books = Books()
    pools = pools_from_scheduler(scheduler)
    for index, pool in enumerate(pools):
        for block in pool.blocks:
            if block.ref_cnt and not block.is_null:
                books.references[index, block.block_id] = block.ref_cnt
        books.hashes |= _hashes(index, pool, secret)
    for manager in scheduler.kv_cache_manager.coordinator.single_type_managers:
        for request_id, blocks in manager.req_to_blocks.items():
            books.held.update((request_id, manager.kv_cache_group_id, number) for number in resident_ids(blocks))
    cache = scheduler.encoder_cache_manager
    sizes = encoder_entry_embeds(scheduler)
    for identity, users in cache.cached.items():
        books.encoder[sizes[identity], tuple(sorted(users))] += 1
    books.free_blocks = tuple(pool.free_block_queue.num_free_blocks for pool in pools)
    return books


def _hashes(index: int, pool: Any, secret: bytes) -> dict[tuple[int, int, int], frozenset[int]]:
    found = [
        (key, block.block_id)
        for key, blocks in pool.cached_block_hash_to_block._cache.items()
        for block in (blocks.values() if isinstance(blocks, dict) else (blocks,))
    ]
    if not found:
        return {}
    raw = b"".join(fixed_hash(key) for key, _ in found)
    keyed = siphash(np.frombuffer(raw, np.uint8).reshape(len(found), HASH_BYTES), secret).tolist()
    sets: dict[tuple[int, int, int], set[int]] = {}
    for (key, block), value in zip(found, keyed, strict=True):
        group = int.from_bytes(key[-GROUP_BYTES:], "big")
        sets.setdefault((index, group, block), set()).add(value)
    return {place: frozenset(values) for place, values in sets.items()}


def own_contradiction(scheduler: Any) -> str:
    """Say where the engine's books contradict themselves; empty where they do not."""
    for index, pool in enumerate(pools_from_scheduler(scheduler)):
        counter = pool.free_block_queue.num_free_blocks
        listed = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
        if len(listed) != counter:
            return f"pool {index}: the engine counts {counter} free blocks and lists {len(listed)}"
        unheld = {block.block_id for block in pool.blocks if block.ref_cnt == 0 and not block.is_null}
        if odd := sorted(unheld.symmetric_difference(listed)):
            state = "free without a reference to it, but not listed" if odd[0] in unheld else "listed as free, but held"
            return f"pool {index}: block {odd[0]} is {state}"
    return ""


def first_difference(replayed: Books, engine: Books) -> str:
    """Say in which block, or else where, the replay first differs from the engine; empty where it does not."""
    for pool, block in _unequal(replayed.references, engine.references):
        ours, theirs = replayed.references[pool, block], engine.references[pool, block]
        return f"block {block} of pool {pool}: {_references(ours)} by replay, {theirs} in the engine's books"
    if replayed.free_blocks != engine.free_blocks:
        return f"free blocks per pool: {replayed.free_blocks} by replay, {engine.free_blocks} in the engine's books"
    for place in _unequal(replayed.hashes, engine.hashes):
        pool, group, block = place
        nothing: frozenset[int] = frozenset()
        ours, theirs = len(replayed.hashes.get(place, nothing)), len(engine.hashes.get(place, nothing))
        where = f"block {block} of pool {pool}, its entries in the hash map of group {group}"
        unlike = ", of which some are others" if ours == theirs else ""
        return f"{where}: {ours} by replay, {theirs} in the engine's books{unlike}"
    for request_id, group, block in _unequal(replayed.held, engine.held):
        ours, theirs = replayed.held[request_id, group, block], engine.held[request_id, group, block]
        where = f"block {block} as held by request {request_id} in group {group}"
        return f"{where}: {_references(ours)} by replay, {theirs} in the engine's books"
    for embeds, users in _unequal(replayed.encoder, engine.encoder):
        ours, theirs = replayed.encoder[embeds, users], engine.encoder[embeds, users]
        who = ", ".join(users) or "nobody"
        where = f"encoder cache, entries of {embeds} embeddings used by {who}"
        return f"{where}: {ours} by replay, {theirs} in the engine's books"
    return ""


def _references(count: int) -> str:
    return f"{count} reference{'' if count == 1 else 's'}"


def _unequal(ours: Any, theirs: Any) -> Iterable[Any]:
    """Keys whose values differ, in order; a key that one side lacks counts as nothing there."""
    nothing: Any = 0 if isinstance(ours, Counter) else frozenset()
    return sorted(key for key in ours.keys() | theirs.keys() if ours.get(key, nothing) != theirs.get(key, nothing))
