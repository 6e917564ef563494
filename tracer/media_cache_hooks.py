"""Measures the processed media that a front end, or an engine core for its front ends, keeps on the host.

vLLM keeps them in one of two places: in the front end, or in the core while the front end keeps
only their sizes. Hooked are the caches that hold data.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from vstate.inventory.outside import outside_pools
from vstate.inventory.tensors import tensors_in, view_bytes
from vstate.schemas.tables.memory import MemoryKind, MemoryPhase
from vstate.schemas.vocabulary import Eviction, Owner, StateClass, Unit
from vstate.tracer.identity import keyed_identity
from vstate.tracer.memory_log import MemoryLog
from vstate.tracer.settings import TraceSettings
from vstate.tracer.state_session import StateSession
from vstate.tracer.wrapping import LOGGER

PROCESSOR_CACHE = f"{Owner.FRONTEND}/{StateClass.PROCESSOR_CACHE}"


def measured_from_the_start(settings: TraceSettings, role: str) -> Callable[[Any], Callable[..., Any]]:
    """Return what makes the ``__init__`` of a cache put the hook on the cache it made."""

    def make(initialize: Any) -> Callable[..., Any]:
        def traced_init(self: Any, *args: Any, **kwargs: Any) -> None:
            initialize(self, *args, **kwargs)
            try:
                MediaCacheHook(self, settings, role).install()
            except Exception as error:  # serving matters more than its trace
                LOGGER.warning("vstate: processed media are not measured (%s: %s)", type(error).__name__, error)

        return traced_init

    return make


class MediaCacheHook:
    """Follows one cache of processed media."""

    def __init__(self, cache: Any, settings: TraceSettings, role: str) -> None:
        """Prepare the hook; its trace begins with the first item, as vLLM makes caches that stay empty."""
        self._cache = cache
        self._settings = settings
        self._role = role
        self._held: dict[str, int] = {}
        self._failed = False

    @functools.cached_property
    def _log(self) -> MemoryLog:
        room = int(self._cache._cache.maxsize)
        component = outside_pools(
            PROCESSOR_CACHE,
            StateClass.PROCESSOR_CACHE,
            Owner.FRONTEND,
            unit=Unit.ITEM,
            unit_bytes=0,
            engine_bytes=room,
            eviction=Eviction.LRU,
        )
        log = StateSession(self._settings, self._role, (0, 0, 0), [component]).log
        log.put(MemoryKind.PLANNED, MemoryPhase.READY, 0, room)
        return log

    def install(self) -> None:
        """Put the hook on this one cache."""
        get_and_update_item = self._cache.get_and_update_item

        @functools.wraps(get_and_update_item)
        def traced(mm_item: Any, mm_hash: str) -> Any:
            before = self._cache._cache.currsize
            result = get_and_update_item(mm_item, mm_hash)
            if self._cache._cache.currsize != before and not self._failed:
                try:
                    self._record(mm_item, mm_hash)
                except Exception as error:
                    self._failed = True
                    LOGGER.warning("vstate: processed media are not measured (%s: %s)", type(error).__name__, error)
            return result

        self._cache.get_and_update_item = traced

    def _record(self, mm_item: Any, mm_hash: str) -> None:
        log, entries = self._log, self._cache._cache
        item_bytes = view_bytes(tensors_in(mm_item))
        log.put(MemoryKind.ITEM, MemoryPhase.SERVING, 0, item_bytes, keyed_identity(mm_hash, self._settings.secret))
        # Asking whether a key is there leaves the order of eviction as it is; reading its value would not.
        self._held = {key: held for key, held in self._held.items() if key in entries}
        if mm_hash in entries:
            self._held[mm_hash] = item_bytes
        log.put(MemoryKind.MEASURED, MemoryPhase.SERVING, 0, sum(self._held.values()))
        log.put(MemoryKind.BOOKED, MemoryPhase.SERVING, 0, int(entries.currsize))
