"""How a method of vLLM is replaced on one instance, and what all hooks share."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable
from typing import Any

from vstate.inventory.from_vllm import pools_from_scheduler
from vstate.tracer.anchors import WRAPPER_MARK
from vstate.tracer.recorder import Recorder

LOGGER = logging.getLogger("vllm.vstate")


def replace_method(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Put ``wrapper`` in the place of ``owner.name`` on this one instance."""
    original = getattr(owner, name)
    functools.update_wrapper(wrapper, original, updated=())
    setattr(wrapper, WRAPPER_MARK, original)
    setattr(owner, name, wrapper)


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
        self.recorder = recorder
        self.scheduler = scheduler
        self.manager = scheduler.kv_cache_manager
        self.managers = self.manager.coordinator.single_type_managers
        self.pools = pools_from_scheduler(scheduler)
        self._told = False

    def keyed(self, identity: str) -> int:
        """Keyed hash of a media identity, 64 bits: clients choose identities, and content hashes tell content."""
        digest = hashlib.blake2b(identity.encode(), key=self._secret, digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True)

    def failed(self, where: str, error: BaseException) -> None:
        """Note a fault of the tracer's own: counted, told once, never raised."""
        self.recorder.lose()
        if not self._told:
            self._told = True
            LOGGER.warning("vstate: recording %s failed (%s: %s); events are lost", where, type(error).__name__, error)


def resident_ids(blocks: Any) -> list[int]:
    """Ids of the blocks that are not the null block, whose id is 0 in every pool."""
    return [number for block in blocks if (number := block.block_id)]
