"""The row of a state inventory."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from vstate.schemas.vocabulary import (
    Eviction,
    Evidence,
    Lifetime,
    Mutability,
    Owner,
    Shareable,
    StateClass,
    Unit,
)


class StateComponent(BaseModel):
    """One kind of state that a model keeps, with its size and its rules.

    Attributes:
        id: Stable id, ``g<group>/<owner>/<state_class>``.
        state_class: What the state is.
        owner: Which part keeps it.
        pool: Index of its block pool.
        group: Index of its KV-cache group.
        layers: Names of the layers that keep it.
        dtype: Element type as vLLM names it; several joined by ``+``.
        unit: What one unit is: ``token`` for KV, ``request`` for whole states.
        useful_bytes_per_unit: Unpadded bytes of one unit over all ``layers``.
        useful_bytes_per_block: Unpadded bytes of one full block over all ``layers``.
        charged_bytes_per_block: This component's share of what a block of the pool costs.
        lifetime: How long a unit lives.
        mutability: How a unit may be written.
        eviction: When a unit may be dropped.
        shareable: Whether two requests with one prefix may use one copy.
        boundary_tokens: Multiple of tokens at which a copy can be shared; 0 where it cannot.
        requires: Ids of the components that must be present at the same boundary.
        evidence: What stands behind the sizes.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    state_class: StateClass
    owner: Owner
    pool: int
    group: int
    layers: tuple[str, ...]
    dtype: str
    unit: Unit
    useful_bytes_per_unit: int
    useful_bytes_per_block: int
    charged_bytes_per_block: int
    lifetime: Lifetime
    mutability: Mutability
    eviction: Eviction
    shareable: Shareable
    boundary_tokens: int
    requires: tuple[str, ...] = ()
    evidence: Evidence = Evidence.BOOKED
