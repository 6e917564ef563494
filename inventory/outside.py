"""Components that lie in no block pool: weights, encoders, what encoders put out, processed media."""

from __future__ import annotations

from vstate.schemas.component import StateComponent
from vstate.schemas.vocabulary import Eviction, Lifetime, Mutability, Owner, Shareable, StateClass, Unit

ENCODER_OUTPUT = f"{Owner.ENCODER}/{StateClass.ENCODER_OUTPUT}"


def weight_component(owner: Owner, part: str, planned: int) -> StateComponent:
    """Make the component of one part's weights, ``planned`` bytes on one rank."""
    state_class = StateClass.ENCODER if owner is Owner.ENCODER else StateClass.WEIGHTS
    return outside_pools(
        "/".join(filter(None, (owner, state_class, part))),
        state_class,
        owner,
        unit=Unit.ENGINE,
        unit_bytes=planned,
        engine_bytes=planned,
        eviction=Eviction.NEVER,
    )


def encoder_component(row_bytes: int, rows: int, dtype: str) -> StateComponent:
    """Make the component of an encoder cache with room for ``rows`` rows of ``row_bytes`` bytes."""
    return outside_pools(
        ENCODER_OUTPUT,
        StateClass.ENCODER_OUTPUT,
        Owner.ENCODER,
        unit=Unit.EMBED,
        unit_bytes=row_bytes,
        engine_bytes=row_bytes * rows,
        eviction=Eviction.UNTIL_CONSUMED,
        dtype=dtype,
    )


def outside_pools(
    component: str,
    state_class: StateClass,
    owner: Owner,
    *,
    unit: Unit,
    unit_bytes: int,
    engine_bytes: int,
    eviction: Eviction,
    dtype: str = "",
) -> StateComponent:
    """Make a component that lies in no block pool; one that can be evicted is shared by all who have the same item."""
    kept = eviction is Eviction.NEVER
    return StateComponent(
        id=component,
        state_class=state_class,
        owner=owner,
        pool=-1,
        group=-1,
        layers=(),
        dtype=dtype,
        unit=unit,
        useful_bytes_per_unit=unit_bytes,
        useful_bytes_per_block=0,
        charged_bytes_per_block=0,
        engine_bytes=engine_bytes,
        lifetime=Lifetime.ENGINE if kept else Lifetime.CACHE,
        mutability=Mutability.IMMUTABLE,
        eviction=eviction,
        shareable=Shareable.NEVER if kept else Shareable.ALWAYS,
        boundary_tokens=0,
    )
