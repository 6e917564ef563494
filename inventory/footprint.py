"""What requests of given lengths take of an engine's pools, and how many of them fit."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from vstate.inventory.estimator import bound_blocks
from vstate.inventory.state_inventory import StateInventory
from vstate.schemas.component import StateComponent
from vstate.schemas.manifests import EngineSettings, GroupManifest, PoolManifest
from vstate.schemas.vocabulary import STATE_SLOT_CLASSES, StateClass, Unit


class RequestFootprint(BaseModel):
    """What a request of one length takes at most, alone and with nothing shared.

    Attributes:
        tokens: Tokens of its prompt; one more is sampled.
        blocks: Blocks of each group.
        total_blocks: Blocks of all groups.
        charged_bytes: Bytes of the pools that those blocks are.
        useful_bytes: Bytes of state that it needs: of its tokens, of a window's, of one whole state.
        pool_share: Share of the fullest pool, its null block left out.
        at_once: Such requests that fit at once.
    """

    model_config = ConfigDict(frozen=True)

    tokens: int
    blocks: tuple[int, ...]
    total_blocks: int
    charged_bytes: int
    useful_bytes: int
    pool_share: float
    at_once: int


def request_footprint(inventory: StateInventory, tokens: int) -> RequestFootprint:
    """Say what a request whose prompt is ``tokens`` tokens takes."""
    blocks = [request_blocks(group, inventory.settings, tokens) for group in inventory.groups]
    taken = dict.fromkeys((pool.pool for pool in inventory.pools), 0)
    for group, count in zip(inventory.groups, blocks, strict=True):
        taken[group.pool] += count
    pools = {pool.pool: pool for pool in inventory.pools}
    return RequestFootprint(
        tokens=tokens,
        blocks=tuple(blocks),
        total_blocks=sum(blocks),
        charged_bytes=sum(pools[pool].block_bytes * count for pool, count in taken.items()),
        useful_bytes=sum(_useful_bytes(component, group, tokens) for group, component in _parts(inventory.groups)),
        pool_share=max((count / usable_blocks(pools[pool]) for pool, count in taken.items()), default=0.0),
        at_once=min((usable_blocks(pools[pool]) // count for pool, count in taken.items() if count), default=0),
    )


def request_blocks(group: GroupManifest, settings: EngineSettings, tokens: int) -> int:
    """Most blocks of a group that a request of ``tokens`` prompt tokens, alone, holds.

    Alone there is no prefix that could end inside a block.
    """
    return bound_blocks(group.model_copy(update={"partial_hits": False}), settings, tokens, 1)


def usable_blocks(pool: PoolManifest) -> int:
    """Blocks that requests can take: all but the null block."""
    return pool.num_blocks - 1


def _parts(groups: Sequence[GroupManifest]) -> list[tuple[GroupManifest, StateComponent]]:
    return [
        (group, component)
        for group in groups
        for component in group.components
        if component.state_class is not StateClass.PADDING
    ]


def _useful_bytes(component: StateComponent, group: GroupManifest, tokens: int) -> int:
    if component.state_class in STATE_SLOT_CLASSES:
        return component.useful_bytes_per_unit
    needed = min(tokens, group.window_tokens) if group.window_tokens else tokens
    return component.useful_bytes_per_unit * needed if component.unit is Unit.TOKEN else 0
