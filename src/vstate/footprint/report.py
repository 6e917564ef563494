"""The report of `vstate inventory`, worked out for a model or read from a run."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from vstate.inventory.footprint import RequestFootprint, request_footprint, usable_blocks
from vstate.inventory.state_inventory import LayerRow, StateInventory
from vstate.schemas.component import StateComponent
from vstate.schemas.manifests import EngineSettings
from vstate.schemas.vocabulary import StateClass

LENGTHS = (12, 1_000, 8_192)
"""Prompt lengths that are shown where none is asked for, beside one token and the longest."""


class GroupLine(BaseModel):
    """A group: what one block of it costs, and what of that is state.

    Attributes:
        state: What it keeps, by owner and class.
        layers: Number of its layers.
        useful_block_bytes: Bytes of state in a full block.
        block_bytes: Bytes that a block costs.
    """

    model_config = ConfigDict(frozen=True)

    group: int
    pool: int
    state: tuple[str, ...]
    layers: int
    block_tokens: int
    window_tokens: int
    state_mode: str
    useful_block_bytes: int
    block_bytes: int


class Capacity(BaseModel):
    """What the pools hold.

    Attributes:
        pool: Index of the pool.
        num_blocks: Its blocks.
        usable_blocks: Its blocks without the null block.
        block_bytes: Bytes of a block.
        total_bytes: Bytes of the pool.
    """

    model_config = ConfigDict(frozen=True)

    pool: int
    num_blocks: int
    usable_blocks: int
    block_bytes: int
    total_bytes: int


class WithoutDraft(BaseModel):
    """The same engine without its draft."""

    model_config = ConfigDict(frozen=True)

    capacity: tuple[Capacity, ...]
    groups: int
    minimum_request: RequestFootprint
    requests: tuple[RequestFootprint, ...]


class Origin(BaseModel):
    """What an inventory is of.

    Attributes:
        model: How the model was named.
        source: ``configuration`` or ``run``.
        profile: Platform whose geometry it is.
        evidence: What stands behind the geometry.
        tensor_parallel_size: Ranks that share the model; figures are those of one.
    """

    model_config = ConfigDict(frozen=True)

    model: str
    source: str
    profile: str
    evidence: str
    tensor_parallel_size: int


class InventoryReport(Origin):
    """What `vstate inventory` says.

    Attributes:
        settings: Settings that the geometry follows from.
        assumed: What was not said and is taken for granted.
        components: Every piece of state.
        groups: The groups.
        capacity: The pools.
        minimum_request: A request of one token.
        requests: Requests of the lengths that were asked for, and of the longest.
        max_num_seqs: Requests that the settings let run at once.
        fits: Whether so many requests of one token fit.
        verdict: One line.
        without_draft: The same without the draft; None where there is none.
        layers: Layer by layer, where that was asked for.
    """

    settings: EngineSettings
    assumed: tuple[str, ...]
    components: tuple[StateComponent, ...]
    groups: tuple[GroupLine, ...]
    capacity: tuple[Capacity, ...]
    minimum_request: RequestFootprint
    requests: tuple[RequestFootprint, ...]
    max_num_seqs: int
    fits: bool
    verdict: str
    without_draft: WithoutDraft | None = None
    layers: tuple[LayerRow, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values, in a stable order."""
        return self.model_dump(mode="json", exclude={"layers"} if self.layers is None else set())


def lengths_of(settings: EngineSettings, asked: tuple[int, ...]) -> list[int]:
    """Return the prompt lengths to show: what was asked for, else a few, and the longest."""
    longest = settings.max_model_len_tokens - 1
    return sorted({*(length for length in asked or LENGTHS if length < longest), longest})


def make_report(
    inventory: StateInventory,
    origin: Origin,
    lengths: tuple[int, ...],
    *,
    layers: bool,
    without_draft: StateInventory | None = None,
) -> InventoryReport:
    """Make the report of an inventory.

    Args:
        inventory: The inventory.
        origin: What it is of.
        lengths: Prompt lengths that are asked for; none for a few.
        layers: Whether to expand it by layer.
        without_draft: The inventory of the same engine without its draft.
    """
    shown = lengths_of(inventory.settings, lengths)
    minimum, wanted = request_footprint(inventory, 1), inventory.settings.max_num_seqs
    return InventoryReport(
        **origin.model_dump(),
        settings=inventory.settings,
        assumed=inventory.assumed,
        components=inventory.components,
        groups=group_lines(inventory),
        capacity=capacity_lines(inventory),
        minimum_request=minimum,
        requests=tuple(request_footprint(inventory, length) for length in shown),
        max_num_seqs=wanted,
        fits=minimum.at_once >= wanted,
        verdict=_verdict(wanted, minimum),
        without_draft=_without_draft(without_draft, shown) if without_draft else None,
        layers=tuple(inventory.layers()) if layers else None,
    )


def group_lines(inventory: StateInventory) -> tuple[GroupLine, ...]:
    """Return a line per group."""
    block_bytes = {pool.pool: pool.block_bytes for pool in inventory.pools}
    return tuple(
        GroupLine(
            group=group.group,
            pool=group.pool,
            state=tuple(
                c.state_class if c.owner == "target" else f"{c.owner} {c.state_class}"
                for c in group.components
                if c.state_class is not StateClass.PADDING
            ),
            layers=len(group.layers),
            block_tokens=group.block_tokens,
            window_tokens=group.window_tokens,
            state_mode=group.state_mode,
            useful_block_bytes=sum(component.useful_bytes_per_block for component in group.components),
            block_bytes=block_bytes[group.pool],
        )
        for group in inventory.groups
    )


def capacity_lines(inventory: StateInventory) -> tuple[Capacity, ...]:
    """Return a line per pool."""
    return tuple(
        Capacity(
            pool=pool.pool,
            num_blocks=pool.num_blocks,
            usable_blocks=usable_blocks(pool),
            block_bytes=pool.block_bytes,
            total_bytes=pool.total_bytes,
        )
        for pool in inventory.pools
    )


def _without_draft(inventory: StateInventory, lengths: list[int]) -> WithoutDraft:
    return WithoutDraft(
        capacity=capacity_lines(inventory),
        groups=len(inventory.groups),
        minimum_request=request_footprint(inventory, 1),
        requests=tuple(request_footprint(inventory, length) for length in lengths),
    )


def _verdict(wanted: int, minimum: RequestFootprint) -> str:
    each = f"each takes {_blocks(minimum.total_blocks)} at least"
    if minimum.at_once >= wanted:
        return f"max_num_seqs {wanted:,} fits: {each}, {minimum.at_once:,} at once"
    return f"max_num_seqs {wanted:,} does not fit: {each}, {minimum.at_once:,} at once; lower it or enlarge the pool"


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count:,} blocks"
