"""The table `estimate`: what an admission gate computed for a request."""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

from vstate.schemas.table import GROUP, POOL, REQUEST_KEY, SEQ, STEP, Column, Table


class EstimateSource(IntEnum):
    """Whose estimate it is."""

    STOCK = 0
    VSTATE = 1


class EstimateScope(IntEnum):
    """Which part of the request's life the estimate covers."""

    PREFILL = 0
    LIFE = 1


class EstimateVerdict(IntEnum):
    """What the gate decided."""

    ADMITTED = 0
    REFUSED = 1
    DEFERRED = 2


ESTIMATE = Table(
    "estimate",
    "One row per group at the first refusal of an attempt and at its admission.",
    (
        SEQ,
        STEP,
        REQUEST_KEY,
        Column("attempt", pa.int32(), "Number of the admission the estimate is for, from 1."),
        Column("source", pa.int8(), "Whose estimate.", EstimateSource),
        Column("scope", pa.int8(), "What it covers.", EstimateScope),
        Column("verdict", pa.int8(), "What the gate decided.", EstimateVerdict),
        POOL,
        GROUP,
        Column("new_blocks", pa.int32(), "Blocks to take from the free queue; -1 where the gate only deferred."),
        Column("held_blocks", pa.int32(), "Prefix-hit blocks that others hold already and that it will share."),
        Column("free_blocks", pa.int32(), "Free blocks of the pool before the decision."),
    ),
)
