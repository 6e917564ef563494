"""How a method of vLLM is replaced on one instance, and what all hooks share."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from vstate.inventory.from_vllm import pools_from_scheduler
from vstate.tracer.anchors import WRAPPER_MARK
from vstate.tracer.identity import keyed_identity
from vstate.tracer.recorder import Recorder
from vstate.tracer.telling import tell

LOGGER = logging.getLogger("vllm.vstate")
FAULT_LIMIT = 1000
"""Faults of hooks after which a process records no more."""


class HookContext:
    """What the hooks of one engine share.

    Attributes:
        recorder: Where they write.
        scheduler: vLLM's scheduler.
        manager: Its KV-cache manager.
        managers: The managers of the groups, in their order.
        pools: The distinct block pools; an index into them is a pool's number in the trace.
    """

    def __init__(self, scheduler: Any, recorder: Recorder, secret: bytes) -> None:
        """Look everything up once; ``secret`` is the run's key for what must not be written as it is."""
        self._secret = secret
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._faults = 0
        self._told_behind = False
        self.recorder = recorder
        recorder.on_behind = self._behind
        self.scheduler = scheduler
        self.manager = scheduler.kv_cache_manager
        self.managers = self.manager.coordinator.single_type_managers
        self.pools = pools_from_scheduler(scheduler)

    def replace(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        """Put ``wrapper`` in the place of ``owner.name`` on this one instance."""
        original = getattr(owner, name)
        functools.update_wrapper(wrapper, original, updated=())
        setattr(wrapper, WRAPPER_MARK, original)
        self._replaced.append((owner, name, wrapper, original if is_on_instance(owner, name) else None))
        setattr(owner, name, wrapper)

    def undo(self) -> None:
        """Take all wrappers away again and leave what was there before.

        One that somebody else has wrapped since stays inside that wrapper: taking it away would take theirs too.
        """
        for owner, name, wrapper, original in reversed(self._replaced):
            if getattr(owner, name) is not wrapper:
                continue
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._replaced.clear()

    def pool_index(self, block: Any) -> int:
        """Number of the pool that a block belongs to; a block without one belongs to the scheduler's."""
        return 0 if block.pool is None else self.pools.index(block.pool)

    def keyed(self, identity: str) -> int:
        """Keyed hash of a media identity, 64 bits."""
        return keyed_identity(identity, self._secret)

    def failed(self, where: str, error: BaseException) -> None:
        """Note a fault of the tracer's own: counted, told once, never raised.

        After `FAULT_LIMIT` of them recording stops for good: it would only gather what is thrown away.

        Raises:
            BaseException: ``error`` is none of ours but an interrupt, which must reach the engine.
        """
        self.recorder.lose()
        if not isinstance(error, Exception):
            raise error
        self._faults += 1
        if self._faults == 1:
            tell("vstate: recording %s failed (%s: %s); events are lost", where, type(error).__name__, error)
        if self._faults == FAULT_LIMIT:
            self.recorder.writer_alive = False
            tell("vstate: recording failed %d times and is off from now on", FAULT_LIMIT)

    def _behind(self, step: int) -> None:
        """Tell once that the writer does not keep up."""
        if not self._told_behind:
            self._told_behind = True
            tell("vstate: the disk is slower than the trace; events from step %d on are dropped and counted", step)


def is_on_instance(owner: Any, name: str) -> bool:
    """Whether the method stands on the instance itself, put there by somebody before us.

    Told by what it is bound to: looking into ``__dict__`` would give the instance a real dict for
    good (CPython 3.11 to 3.13), and slow every attribute read on it down.
    """
    found = getattr(owner, name)
    return getattr(found, "__func__", found) is not getattr(type(owner), name, None)


def resident_ids(blocks: Any) -> list[int]:
    """Ids of the blocks that are not the null block, whose id is 0 in every pool."""
    return [number for block in blocks if (number := block.block_id)]


def ids_by_pool(context: HookContext, blocks: Any) -> dict[int, list[int]]:
    """Ids of the blocks that are not null, by the number of their pool."""
    found: dict[int, list[int]] = {}
    for block in blocks:
        if block.block_id:
            found.setdefault(context.pool_index(block), []).append(block.block_id)
    return found
