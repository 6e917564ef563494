"""Runs of the tiny engine in which everything happens that can happen to a block."""

from __future__ import annotations

from dataclasses import dataclass

from support.tiny_engine import TinyEngine
from support.tiny_pool import GroupSpec

FULL = GroupSpec()
WINDOW = GroupSpec(window_tokens=8)
STATE = GroupSpec(block_tokens=8, state=True)
OTHER_POOL = GroupSpec(pool=1, block_tokens=8)

LAYOUTS: tuple[tuple[tuple[int, ...], tuple[GroupSpec, ...]], ...] = (
    ((20,), (FULL,)),
    ((32,), (FULL, WINDOW)),
    ((40,), (FULL, WINDOW, STATE)),
    ((24, 16), (FULL, OTHER_POOL)),
)


@dataclass(frozen=True)
class Scenario:
    """What a drawn run is made of."""

    seed: int = 0
    layout: int = 0
    steps: int = 40
    rotate_every: int = 0
    lose_at: int = 0
    drained: bool = True
    snapshot_every: int = 0


def run_scenario(scenario: Scenario) -> TinyEngine:
    """Drive a tiny engine through a scenario; the same one gives the same rows."""
    pool_blocks, groups = LAYOUTS[scenario.layout]
    engine = TinyEngine(pool_blocks, groups, scenario.seed)
    draw = engine.random
    for step in range(1, scenario.steps + 1):
        if draw.random() < 0.4:
            engine.arrive(draw.randint(1, 40), draw.randint(1, 12), family=draw.randrange(3))
        engine.schedule(chunk=draw.choice((3, 8, 16)))
        _disturb(engine)
        engine.update(defer=draw.random() < 0.2)
        if draw.random() < 0.3:
            engine.drain_deferred()
        if draw.random() < 0.2:
            engine.log.hand_over()
        if scenario.rotate_every and step % scenario.rotate_every == 0:
            engine.rotate()
        if scenario.snapshot_every and step % scenario.snapshot_every == 0:
            engine.log.hand_over()
            engine.snapshot()
        if step == scenario.lose_at:
            engine.lose_chunk()
    if scenario.drained:
        engine.drain_deferred()
        engine.unpin_all()
        engine.drain()
        engine.reset()
        engine.step()
    return engine


def _disturb(engine: TinyEngine) -> None:
    draw = engine.random
    chance = draw.random()
    if chance < 0.1:
        engine.copy_on_write()
    elif chance < 0.2:
        engine.move_hashes()
    elif chance < 0.25:
        engine.pin()
    elif chance < 0.35:
        engine.unpin_all()
    elif chance < 0.4:
        engine.evict_some()
    elif chance < 0.45 and engine.waiting:
        engine.abort(engine.waiting[-1])
    elif chance < 0.5 and engine.running:
        engine.abort(engine.running[0])
