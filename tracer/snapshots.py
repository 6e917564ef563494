"""Takes the engine's books whole, from its own tables, at a step boundary."""

from __future__ import annotations

from collections import Counter
from typing import Any

from vstate.schemas.tables.snapshot import SnapshotKind
from vstate.schemas.vocabulary import NOT_APPLICABLE, Holder
from vstate.tracer.recorder import Recorder, SnapshotRow
from vstate.tracer.request_hooks import MOST_TOKENS
from vstate.tracer.versions import encoder_entry_embeds
from vstate.tracer.wrapping import HookContext, ids_by_pool, resident_ids


def take_snapshot(context: HookContext) -> None:
    """Write holders, hashes, live requests, free counts of all pools, and the encoder cache.

    What references the request tables and the deferred frees do not explain is held by a
    connector or another part of the engine and is written as pinned.
    """
    recorder, scheduler = context.recorder, context.scheduler
    recorder.repeat_names()
    recorder.snapshot_row(SnapshotKind.BEGIN, SnapshotRow(lost_from_step=recorder.lost_from_step))
    held = [Counter[int]() for _ in context.pools]
    _write_request_tables(context, held)
    _write_deferred(context, held)
    for index, pool in enumerate(context.pools):
        rest = [
            block.block_id
            for block in pool.blocks
            if not block.is_null
            for _ in range(block.ref_cnt - held[index][block.block_id])
        ]
        if rest:
            recorder.snapshot_row(SnapshotKind.HOLDER, SnapshotRow(pool=index, key=Holder.PINNED, blocks=rest))
        _write_hashes(recorder, index, pool)
        free = pool.free_block_queue.num_free_blocks
        recorder.snapshot_row(SnapshotKind.POOL, SnapshotRow(pool=index, free_blocks=free))
    _write_encoder(context)
    for request_id, request in scheduler.requests.items():
        entry = recorder.entry(request_id)
        lengths = (
            request.num_prompt_tokens,
            min(request.max_tokens, MOST_TOKENS),
            request.num_tokens,
            request.num_computed_tokens,
        )
        recorder.snapshot_row(SnapshotKind.REQUEST, SnapshotRow(key=entry.key, request=(entry.attempt, *lengths)))
    recorder.snapshot_row(SnapshotKind.END)


def _write_request_tables(context: HookContext, held: list[Counter[int]]) -> None:
    recorder = context.recorder
    for manager in context.managers:
        index = context.pools.index(manager.block_pool)
        for request_id, blocks in manager.req_to_blocks.items():
            ids = resident_ids(blocks)
            if ids:
                held[index].update(ids)
                key = recorder.entry(request_id).key
                row = SnapshotRow(pool=index, group=manager.kv_cache_group_id, key=key, blocks=ids)
                recorder.snapshot_row(SnapshotKind.HOLDER, row)


def _write_deferred(context: HookContext, held: list[Counter[int]]) -> None:
    for _, blocks in context.scheduler.deferred_frees:
        for pool, ids in ids_by_pool(context, blocks).items():
            held[pool].update(ids)
            row = SnapshotRow(pool=pool, key=Holder.DEFERRED_FREE, blocks=ids)
            context.recorder.snapshot_row(SnapshotKind.HOLDER, row)


def _write_hashes(recorder: Recorder, index: int, pool: Any) -> None:
    for key, found in pool.cached_block_hash_to_block._cache.items():
        for block in found.values() if isinstance(found, dict) else (found,):
            group = int.from_bytes(key[-4:], "big")
            position = block.block_hash_num_tokens if block.block_hash == key else NOT_APPLICABLE
            row = SnapshotRow(pool=index, group=group, position=position, blocks=(block.block_id,))
            recorder.snapshot_row(SnapshotKind.HASH, row, raw=key)


def _write_encoder(context: HookContext) -> None:
    cache, recorder = context.scheduler.encoder_cache_manager, context.recorder
    if getattr(cache, "cache_size", 0) <= 0 or not hasattr(cache, "freed"):
        return
    size = SnapshotRow(entry_embeds=cache.cache_size, free_embeds=cache.num_free_slots)
    recorder.snapshot_row(SnapshotKind.ENCODER, size)
    sizes = encoder_entry_embeds(context.scheduler)
    for identity, users in cache.cached.items():
        keys = [recorder.entry(request_id).key for request_id in users] or [NOT_APPLICABLE]
        embeds, media = sizes[identity], context.keyed(identity)
        for key in keys:
            recorder.snapshot_row(SnapshotKind.ENCODER_ENTRY, SnapshotRow(key=key, entry_embeds=embeds, media=media))
