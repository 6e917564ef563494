"""The hooks of one block pool, and of the copies on write between its blocks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from vstate.schemas.tables.block import BlockKind
from vstate.schemas.vocabulary import NOT_APPLICABLE, Holder
from vstate.tracer.attribution import holder_of
from vstate.tracer.versions import method_if_any
from vstate.tracer.wrapping import HookContext, resident_ids

# Plain numbers: looking a member up on its enum class costs more than recording it (CPython 3.11).
_ALLOC, _FREE, _TOUCH, _PIN, _UNPIN = (
    int(kind) for kind in (BlockKind.ALLOC, BlockKind.FREE, BlockKind.TOUCH, BlockKind.PIN, BlockKind.UNPIN)
)
_EVICT, _CACHE_REMOVE, _MOVE, _RESET = (
    int(kind) for kind in (BlockKind.EVICT, BlockKind.CACHE_REMOVE, BlockKind.MOVE, BlockKind.RESET)
)
_UNKNOWN, _COPY_ON_WRITE, _PINNED = (int(h) for h in (Holder.UNKNOWN, Holder.COPY_ON_WRITE, Holder.PINNED))


class PoolHooks:
    """Records what happens to the blocks and hashes of one pool."""

    def __init__(self, context: HookContext, index: int) -> None:
        """Prepare the hooks of the pool with number ``index``."""
        self._context = context
        self._recorder = context.recorder
        self._record = context.recorder.blocks
        self._failed = context.failed
        self._index = index
        self._pool = context.pools[index]
        self._allocating = False
        self._evicted: list[int] = []
        self._caching: Any = None

    def install(self) -> None:
        """Put the hooks in place."""
        self._hook_allocation()
        self._hook_free()
        self._hook_touch()
        self._hook_hashes()
        self._hook_move()
        self._hook_reset_and_unpin()
        for manager in self._context.managers:
            if manager.block_pool is self._pool:
                self._hook_copy_on_write(manager)

    def _hook_allocation(self) -> None:
        recorder, record, index, evicted = self._recorder, self._record, self._index, self._evicted
        get_new_blocks = self._pool.get_new_blocks

        def traced_get_new_blocks(num_blocks: int, *args: Any, **kwargs: Any) -> Any:
            self._allocating = True
            try:
                blocks = get_new_blocks(num_blocks, *args, **kwargs)
            finally:
                self._allocating = False
            try:
                if evicted:
                    try:
                        record(_EVICT, index, NOT_APPLICABLE, NOT_APPLICABLE, evicted)
                    finally:
                        # What could not be recorded must not be told again after the next snapshot.
                        evicted.clear()
                if blocks:
                    key, group = holder_of(recorder, sys._getframe(1))
                    record(_ALLOC, index, group, key, [block.block_id for block in blocks])
            except BaseException as error:
                self._failed("get_new_blocks", error)
            return blocks

        self._context.replace(self._pool, "get_new_blocks", traced_get_new_blocks)

    def _hook_free(self) -> None:
        recorder, record, index, pool = self._recorder, self._record, self._index, self._pool
        free_blocks, several = pool.free_blocks, len(self._context.pools) > 1

        def traced_free_blocks(ordered_blocks: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
            blocks = list(ordered_blocks)
            try:
                # Blocks of another pool are passed on to it by vLLM and recorded there.
                mine = [b for b in blocks if b.pool is None or b.pool is pool] if several else blocks
                ids = resident_ids(mine)
                if ids:
                    key, group = holder_of(recorder, sys._getframe(1))
                    record(_FREE, index, group, key, ids)
            except BaseException as error:
                self._failed("free_blocks", error)
            return free_blocks(blocks, *args, **kwargs)

        self._context.replace(pool, "free_blocks", traced_free_blocks)

    def _hook_touch(self) -> None:
        recorder, record, index = self._recorder, self._record, self._index
        touch = self._pool.touch

        def traced_touch(blocks: Any, *args: Any, **kwargs: Any) -> Any:
            result = touch(blocks, *args, **kwargs)
            try:
                ids = resident_ids(blocks)
                if ids:
                    key, group = holder_of(recorder, sys._getframe(1))
                    if key == _UNKNOWN:
                        record(_PIN, index, NOT_APPLICABLE, _PINNED, ids)
                    else:
                        record(_TOUCH, index, group, key, ids)
            except BaseException as error:
                self._failed("touch", error)
            return result

        self._context.replace(self._pool, "touch", traced_touch)

    def _hook_hashes(self) -> None:
        recorder, record, index, pool = self._recorder, self._record, self._index, self._pool
        remove_hashes, insert_hash = pool._remove_cached_block_hashes, pool._insert_block_hash

        def traced_remove_hashes(block: Any, *args: Any, **kwargs: Any) -> Any:
            removed = remove_hashes(block, *args, **kwargs)
            try:
                if removed and self._allocating:
                    self._evicted.append(block.block_id)
                elif removed:
                    record(_CACHE_REMOVE, index, NOT_APPLICABLE, NOT_APPLICABLE, [block.block_id])
            except BaseException as error:
                self._failed("_remove_cached_block_hashes", error)
            return removed

        def traced_insert_hash(
            block_hash_with_group_id: bytes, block: Any, num_tokens: int | None, *args: Any, **kwargs: Any
        ) -> Any:
            known = False
            try:
                # Only what changes the map is an event; a block that has no hash yet cannot be in it.
                known = block.block_hash is not None and pool.cached_block_hash_to_block.contain(
                    block_hash_with_group_id, block.block_id
                )
            except BaseException as error:
                self._failed("_insert_block_hash", error)
            result = insert_hash(block_hash_with_group_id, block, num_tokens, *args, **kwargs)
            if known:
                return result
            try:
                key = verified = NOT_APPLICABLE
                if self._caching is not None:
                    key, verified = recorder.entry(self._caching.request_id).key, self._caching.num_tokens
                position = NOT_APPLICABLE if num_tokens is None else num_tokens
                recorder.cache_insert(index, key, block.block_id, block_hash_with_group_id, position, verified)
            except BaseException as error:
                self._failed("_insert_block_hash", error)
            return result

        self._context.replace(pool, "_remove_cached_block_hashes", traced_remove_hashes)
        self._context.replace(pool, "_insert_block_hash", traced_insert_hash)
        for name in ("cache_full_blocks", "cache_partial_block"):
            self._context.replace(pool, name, self._for_request(getattr(pool, name)))

    def _for_request(self, cache_blocks: Callable[..., Any]) -> Callable[..., Any]:
        """Remember whose blocks are being cached while vLLM inserts their hashes."""

        def traced(request: Any, *args: Any, **kwargs: Any) -> Any:
            self._caching = request
            try:
                return cache_blocks(request, *args, **kwargs)
            finally:
                self._caching = None

        return traced

    def _hook_move(self) -> None:
        recorder, record, index = self._recorder, self._record, self._index
        move = self._pool.move_block_hashes

        def traced_move(src_block: Any, dst_block: Any, *args: Any, **kwargs: Any) -> Any:
            result = move(src_block, dst_block, *args, **kwargs)
            try:
                source, copy = src_block.block_id, dst_block.block_id
                key, group = holder_of(recorder, sys._getframe(1))
                record(_MOVE, index, group, key, [source, copy])
                if key >= 0:
                    # The request keeps writing to the source; what it allocated as the copy is
                    # the engine's now, and the source is kept until the copy has run.
                    record(_PIN, index, NOT_APPLICABLE, _COPY_ON_WRITE, [source, copy])
                    record(_UNPIN, index, group, key, [copy])
            except BaseException as error:
                self._failed("move_block_hashes", error)
            return result

        self._context.replace(self._pool, "move_block_hashes", traced_move)

    def _hook_copy_on_write(self, manager: Any) -> None:
        recorder, record, index = self._recorder, self._record, self._index
        group, apply = manager.kv_cache_group_id, manager._apply_cow

        def traced_apply(
            request_id: str, block_idx: int, source_block: Any, cow_block: Any, *args: Any, **kwargs: Any
        ) -> Any:
            result = apply(request_id, block_idx, source_block, cow_block, *args, **kwargs)
            try:
                key = recorder.entry(request_id).key
                pair = [source_block.block_id, cow_block.block_id]
                record(_PIN, index, NOT_APPLICABLE, _COPY_ON_WRITE, pair)
                record(_UNPIN, index, group, key, pair[:1])
            except BaseException as error:
                self._failed("_apply_cow", error)
            return result

        self._context.replace(manager, "_apply_cow", traced_apply)

    def _hook_reset_and_unpin(self) -> None:
        recorder, record, index, pool = self._recorder, self._record, self._index, self._pool
        reset, unpin = pool.reset_prefix_cache, method_if_any(pool, "unpin_blocks")

        def traced_reset(*args: Any, **kwargs: Any) -> Any:
            done = reset(*args, **kwargs)
            try:
                if done:
                    record(_RESET, index, NOT_APPLICABLE, NOT_APPLICABLE, [])
            except BaseException as error:
                self._failed("reset_prefix_cache", error)
            return done

        def traced_unpin(blocks: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
            released = list(blocks)
            result = unpin(released, *args, **kwargs)
            try:
                key, group = holder_of(recorder, sys._getframe(1))
                holder = _PINNED if key == _UNKNOWN else key
                record(_UNPIN, index, group, holder, resident_ids(released))
            except BaseException as error:
                self._failed("unpin_blocks", error)
            return result

        self._context.replace(pool, "reset_prefix_cache", traced_reset)
        if unpin:
            self._context.replace(pool, "unpin_blocks", traced_unpin)
