"""Turns what layers keep in a block into components: sizes, rules, and what is left over as padding."""

from __future__ import annotations

from typing import NamedTuple

from vstate.schemas.component import StateComponent
from vstate.schemas.vocabulary import (
    STATE_SLOT_CLASSES,
    Eviction,
    Evidence,
    Lifetime,
    Mutability,
    Owner,
    Shareable,
    StateClass,
    Unit,
)


class LayerState(NamedTuple):
    """One kind of state of one layer.

    ``block_bytes`` are the unpadded bytes of one block of that layer, ``page_bytes`` those of the layer's whole page.
    """

    layer: str
    owner: Owner
    state_class: StateClass
    dtype: str
    block_bytes: int
    page_bytes: int


class Facts(NamedTuple):
    """What the components of one group have in common."""

    group: int
    pool: int
    block_tokens: int
    boundary_tokens: int
    block_bytes: int


def components(states: list[LayerState], facts: Facts) -> tuple[StateComponent, ...]:
    """Turn layer states into components of a group, what is left of a block into `padding`."""
    by_kind: dict[tuple[Owner, StateClass], list[LayerState]] = {}
    for state in states:
        by_kind.setdefault((state.owner, state.state_class), []).append(state)
    made = [_component(owner, state_class, members, facts) for (owner, state_class), members in by_kind.items()]
    ids = [component.id for component in made]
    made = [c.model_copy(update={"requires": tuple(i for i in ids if i != c.id)}) for c in made]
    padding = facts.block_bytes - sum(component.useful_bytes_per_block for component in made)
    if padding > 0:
        lost = {state.layer: state.page_bytes for state in states}
        for state in states:
            lost[state.layer] -= state.block_bytes
        # Padding is the target's, unless nothing of the target is there to be padded.
        owner = Owner.TARGET if any(state.owner is Owner.TARGET for state in states) else Owner.DRAFT
        made.append(_padding(owner, padding, lost, facts))
    return tuple(made)


def _component(owner: Owner, state_class: StateClass, members: list[LayerState], facts: Facts) -> StateComponent:
    block_bytes = sum(member.block_bytes for member in members)
    slot = state_class in STATE_SLOT_CLASSES
    return StateComponent(
        id=f"g{facts.group}/{owner}/{state_class}",
        state_class=state_class,
        owner=owner,
        pool=facts.pool,
        group=facts.group,
        layers=tuple(member.layer for member in members),
        dtype="+".join(dict.fromkeys(member.dtype for member in members)),
        unit=Unit.REQUEST if slot else Unit.TOKEN,
        useful_bytes_per_unit=block_bytes if slot else block_bytes // facts.block_tokens,
        useful_bytes_per_block=block_bytes,
        charged_bytes_per_block=block_bytes,
        layer_block_bytes=tuple(member.block_bytes for member in members),
        lifetime=Lifetime.WINDOW if state_class is StateClass.SLIDING_KV else Lifetime.REQUEST,
        mutability=Mutability.IN_PLACE if slot else Mutability.APPEND_ONLY,
        eviction=Eviction.WITH_DEPENDENTS if slot or state_class is StateClass.SPARSE_INDEX else Eviction.LRU,
        shareable=Shareable.AT_BOUNDARY if slot else Shareable.ALWAYS,
        boundary_tokens=facts.boundary_tokens if slot else facts.block_tokens,
        evidence=Evidence.BOOKED,
    )


def _padding(owner: Owner, padding_bytes: int, lost: dict[str, int], facts: Facts) -> StateComponent:
    """Make the padding of a group; ``lost`` are the bytes that each layer's own page is padded by."""
    return StateComponent(
        id=f"g{facts.group}/{owner}/{StateClass.PADDING}",
        state_class=StateClass.PADDING,
        owner=owner,
        pool=facts.pool,
        group=facts.group,
        layers=tuple(lost),
        dtype="",
        unit=Unit.BLOCK,
        useful_bytes_per_unit=0,
        useful_bytes_per_block=0,
        charged_bytes_per_block=padding_bytes,
        layer_block_bytes=tuple(lost.values()),
        lifetime=Lifetime.REQUEST,
        mutability=Mutability.IMMUTABLE,
        eviction=Eviction.NEVER,
        shareable=Shareable.NEVER,
        boundary_tokens=0,
    )
