"""The hooks of the scheduler's encoder cache."""

from __future__ import annotations

import sys
from time import monotonic_ns
from typing import Any

from vstate.schemas.tables.encoder import EncoderKind
from vstate.schemas.vocabulary import NOT_APPLICABLE
from vstate.tracer.wrapping import HookContext

_NO_ITEM = (NOT_APPLICABLE, NOT_APPLICABLE, NOT_APPLICABLE)


class EncoderHooks:
    """Records what the scheduler books in its encoder cache.

    A manager without `free_encoder_input` (a model without media) has nothing to hook.
    """

    def __init__(self, context: HookContext) -> None:
        """Prepare the hooks of one scheduler."""
        self._context = context
        self._recorder = context.recorder
        self._cache = context.scheduler.encoder_cache_manager

    def install(self) -> None:
        """Put the hooks in place, where there is a cache with any room."""
        if getattr(self._cache, "cache_size", 0) <= 0 or not hasattr(self._cache, "freed"):
            return
        self._hook_use("allocate", EncoderKind.ALLOCATE)
        self._hook_use("check_and_update_cache", EncoderKind.HIT)
        self._hook_use("free_encoder_input", EncoderKind.RELEASE)
        self._hook_eviction()
        self._hook_reset()

    def _hook_use(self, name: str, kind: EncoderKind) -> None:
        original = getattr(self._cache, name)
        only_true = kind is EncoderKind.HIT

        def traced(request: Any, input_id: int, *args: Any, **kwargs: Any) -> Any:
            result = original(request, input_id, *args, **kwargs)
            try:
                if result or not only_true:
                    self._item_row(int(kind), request, input_id)
            except BaseException as error:
                self._context.failed(name, error)
            return result

        self._context.replace(self._cache, name, traced)

    def _hook_eviction(self) -> None:
        cache, can_allocate = self._cache, self._cache.can_allocate

        def traced_can_allocate(*args: Any, **kwargs: Any) -> Any:
            before = sys.maxsize
            known: dict[str, int] = {}
            try:
                # vLLM's own log of what it drops says which, but no longer how large; what nobody uses is dropped.
                before, known = len(cache.freed), dict(cache.freeable)
            except BaseException as error:
                self._context.failed("can_allocate", error)
            result = can_allocate(*args, **kwargs)
            try:
                for identity in cache.freed[before:]:
                    self._row(int(EncoderKind.EVICT), NOT_APPLICABLE, identity, _NO_ITEM, known.get(identity, 0))
            except BaseException as error:
                self._context.failed("can_allocate", error)
            return result

        self._context.replace(cache, "can_allocate", traced_can_allocate)

    def _hook_reset(self) -> None:
        reset = self._cache.reset

        def traced_reset(*args: Any, **kwargs: Any) -> Any:
            result = reset(*args, **kwargs)
            try:
                self._row(int(EncoderKind.RESET), NOT_APPLICABLE, "", _NO_ITEM, NOT_APPLICABLE)
            except BaseException as error:
                self._context.failed("reset", error)
            return result

        self._context.replace(self._cache, "reset", traced_reset)

    def _item_row(self, kind: int, request: Any, input_id: int) -> None:
        feature = request.mm_features[input_id]
        item = (input_id, feature.mm_position.offset, feature.mm_position.length)
        key = self._recorder.entry(request.request_id).key
        self._row(kind, key, feature.identifier, item, request.get_num_encoder_embeds(input_id))

    def _row(self, kind: int, key: int, identity: str, item: tuple[int, int, int], embeds: int) -> None:
        recorder, cache = self._recorder, self._cache
        media = self._context.keyed(identity) if identity else 0
        free = (cache.num_free_slots, cache.num_freeable_slots)
        recorder.row("encoder", recorder.step, kind, monotonic_ns(), key, media, *item, embeds, *free)
