"""What the probe does to the engine: one short script per thing that can happen to state.

Each operation says whether it happened, by what the engine shows and never by what was recorded: a
probe that exercised nothing must not pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from vstate.doctor.probe_engine import BLOCK_TOKENS, CHUNK_TOKENS, MOST_RUNNING, ProbeEngine

MOST_STEPS = 200
"""Steps after which an operation is given up as not happening."""


@dataclass(frozen=True)
class Operation:
    """One thing that can happen to state.

    Attributes:
        name: What it is called in the report.
        run: Makes it happen and says whether it did.
        needed: Method of the pool without which it cannot happen; empty for none.
    """

    name: str
    run: Callable[[ProbeEngine], bool]
    needed: str = ""


def _prompt(family: int, tokens: int) -> list[int]:
    """A prompt that shares no block with one of another family."""
    return [100 + family * 37 + place % 11 for place in range(tokens)]


def _pool(engine: ProbeEngine) -> Any:
    return engine.scheduler.kv_cache_manager.block_pool


def _hashes(engine: ProbeEngine) -> set[bytes]:
    return set(_pool(engine).cached_block_hash_to_block._cache)


def _most_references(engine: ProbeEngine) -> int:
    return max(int(block.ref_cnt) for block in _pool(engine).blocks if not block.is_null)


def _end(engine: ProbeEngine, request_ids: Iterable[str]) -> None:
    for request_id in request_ids:
        engine.abort(request_id)


def _steps_until(engine: ProbeEngine, happened: Callable[[], bool]) -> bool:
    """Step until something happened; False where the engine ends or goes on without it."""
    for _ in range(MOST_STEPS):
        if happened():
            return True
        if not engine.scheduler.requests:
            return False
        engine.step()
    return happened()


def _allocate(engine: ProbeEngine) -> bool:
    engine.add("first", _prompt(0, 210), outputs=4)
    before = _pool(engine).free_block_queue.num_free_blocks
    engine.step()
    return bool(_pool(engine).free_block_queue.num_free_blocks < before)


def _cache(engine: ProbeEngine) -> bool:
    return _steps_until(engine, lambda: engine.scheduler.requests["first"].num_output_tokens > 0) and bool(
        _hashes(engine)
    )


def _free(engine: ProbeEngine) -> bool:
    return _steps_until(engine, lambda: not engine.scheduler.requests) and _most_references(engine) == 0


def _share(engine: ProbeEngine) -> bool:
    prefix = _prompt(0, 210)
    engine.add("left", prefix + _prompt(1, 60), outputs=40)
    engine.step()
    engine.add("right", prefix + _prompt(2, 60), outputs=40)
    shared = _steps_until(engine, lambda: _most_references(engine) > 1)
    engine.step()
    return shared


def _abort(engine: ProbeEngine) -> bool:
    _end(engine, ("left", "right"))
    engine.step()
    return _most_references(engine) == 0


def _copy_on_write(engine: ProbeEngine) -> bool:
    """The first request moves its own state out of the way of a hit; the second hits inside a block."""
    prompt = _prompt(3, BLOCK_TOKENS + BLOCK_TOKENS // 2 + 4)
    before = engine.copies
    engine.add("writer", prompt, outputs=4)
    moved = _steps_until(engine, lambda: engine.copies > before)
    _steps_until(engine, lambda: not engine.scheduler.requests)
    between = engine.copies
    engine.add("reader", prompt + _prompt(4, 20), outputs=4)
    copied = _steps_until(engine, lambda: engine.copies > between)
    _steps_until(engine, lambda: not engine.scheduler.requests)
    return moved and copied


def _evict(engine: ProbeEngine) -> bool:
    before = _hashes(engine)

    def evicted() -> bool:
        return bool(before - _hashes(engine))

    for number in range(8):
        engine.add(f"filler-{number}", _prompt(10 + number, CHUNK_TOKENS), outputs=2)
        _steps_until(engine, lambda: not engine.scheduler.requests)
        if evicted():
            return True
    return False


def _preempt(engine: ProbeEngine) -> bool:
    before = engine.preempted
    names = [f"crowd-{number}" for number in range(MOST_RUNNING)]
    for number, name in enumerate(names):
        engine.add(name, _prompt(20 + number, BLOCK_TOKENS - 4), outputs=200)
    happened = _steps_until(engine, lambda: engine.preempted > before)
    for _ in range(4):
        engine.step()
    _end(engine, names)
    engine.step()
    return happened


def _deferred_free(engine: ProbeEngine) -> bool:
    """A request that ends while a step of it runs keeps its blocks until that step is processed."""
    scheduler = engine.scheduler
    scheduler.defer_block_free = True
    engine.add("late", _prompt(30, 100), outputs=20)
    engine.step()
    output = engine.schedule()
    engine.abort("late")
    deferred = bool(scheduler.deferred_frees)
    engine.complete(output)
    engine.step()
    drained = not scheduler.deferred_frees and _most_references(engine) == 0
    scheduler.defer_block_free = False
    return deferred and drained


def _pin(engine: ProbeEngine) -> bool:
    """A part of the engine that is no request, a connector for one, keeps a block for itself."""
    pool = _pool(engine)
    block = next(block for block in pool.blocks if block.block_hash is not None)
    pool.touch([block])
    pinned = block.ref_cnt == 1
    engine.boundary()
    pool.unpin_blocks([block], lambda _: None)
    engine.boundary()
    return bool(pinned and block.ref_cnt == 0)


def _encoder(engine: ProbeEngine) -> bool:
    """Two requests share an item, and a third needs the room of what they left; sizes tell the items apart."""
    cache = engine.scheduler.encoder_cache_manager
    prompt = _prompt(40, 60)
    engine.add("sees", prompt, outputs=20, media=(("shared", 2, 14), ("own", 26, 16)))
    engine.step()
    engine.add("sees-again", _prompt(41, 60), outputs=20, media=(("shared", 2, 14),))
    output = engine.schedule()
    shared = "sees-again" in cache.cached.get("shared", ()) and "sees-again" not in output.scheduled_encoder_inputs
    engine.complete(output)
    _end(engine, ("sees", "sees-again"))
    engine.step()
    engine.add("sees-more", _prompt(42, 60), outputs=2, media=(("large", 2, 40),))
    evicted = _steps_until(engine, lambda: "large" in cache.cached and "own" not in cache.cached)
    _steps_until(engine, lambda: not engine.scheduler.requests)
    return shared and evicted


def _reset(engine: ProbeEngine) -> bool:
    done = bool(engine.scheduler.reset_prefix_cache())
    engine.scheduler.encoder_cache_manager.reset()
    engine.boundary()
    return done and not _hashes(engine)


OPERATIONS: tuple[Operation, ...] = (
    Operation("allocate", _allocate),
    Operation("cache", _cache),
    Operation("free", _free),
    Operation("share", _share),
    Operation("abort", _abort),
    Operation("copy on write", _copy_on_write),
    Operation("evict", _evict),
    Operation("preempt", _preempt),
    Operation("deferred free", _deferred_free),
    Operation("pin", _pin, needed="unpin_blocks"),
    Operation("encoder cache", _encoder),
    Operation("reset", _reset),
)
"""In the order in which they run; each needs an engine without requests but the second and the third."""
