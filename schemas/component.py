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
        id: Stable id: ``g<group>/<owner>/<state_class>`` in a pool, ``<owner>/<state_class>`` outside,
            with a part's name behind it where one owner has several.
        state_class: What the state is.
        owner: Which part keeps it.
        pool: Index of its block pool; -1 for what lies outside the pools.
        group: Index of its KV-cache group; -1 for what lies outside the pools.
        layers: Names of the layers that keep it.
        dtype: Element type as vLLM names it; several joined by ``+``.
        unit: What one unit is: ``token`` for KV, ``request`` for whole states, ``embed`` for one row of
            an encoder's output, ``engine`` for what is there once.
        useful_bytes_per_unit: Unpadded bytes of one unit over all ``layers``.
        useful_bytes_per_block: Unpadded bytes of one full block over all ``layers``; 0 outside the pools.
        charged_bytes_per_block: This component's share of what a block of the pool costs; 0 outside the pools.
        layer_block_bytes: Its bytes of one block in each of ``layers``, in their order; empty outside the pools.
        engine_bytes: Bytes planned for it in one worker or front end, outside the pools; 0 in them, where
            they are ``charged_bytes_per_block`` times the pool's blocks.
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
    layer_block_bytes: tuple[int, ...] = ()
    engine_bytes: int = 0
    lifetime: Lifetime
    mutability: Mutability
    eviction: Eviction
    shareable: Shareable
    boundary_tokens: int
    requires: tuple[str, ...] = ()
    evidence: Evidence = Evidence.BOOKED
