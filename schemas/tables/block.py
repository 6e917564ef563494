"""The table `block`: everything that happens to blocks."""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

from vstate.schemas.table import BLOCKS, GROUP, POOL, REQUEST_KEY, SEQ, STEP, Column, Table


class BlockKind(IntEnum):
    """What happened to the blocks."""

    ALLOC = 0
    FREE = 1
    TOUCH = 2
    PIN = 3
    UNPIN = 4
    EVICT = 5
    CACHE_INSERT = 6
    CACHE_REMOVE = 7
    MOVE = 8
    RESET = 9


REFERENCE_DELTA: dict[BlockKind, int] = {
    BlockKind.ALLOC: 1,
    BlockKind.TOUCH: 1,
    BlockKind.PIN: 1,
    BlockKind.FREE: -1,
    BlockKind.UNPIN: -1,
}
"""How an event changes the reference count of each of its blocks; 0 for the others.

A reference that passes from one holder to another (copy on write, a deferred free) is
a `pin` by the new holder and then an `unpin` by the old one, so that no block seems to
be free in between.
"""

BLOCK = Table(
    "block",
    "One row per call that changes blocks, with all its blocks. Null blocks are left out. A `move` names source and "
    "destination and follows the rows of the removals and inserts that it consists of.",
    (
        SEQ,
        STEP,
        Column("kind", pa.int8(), "What happened.", BlockKind),
        POOL,
        GROUP,
        REQUEST_KEY,
        Column("position_tokens", pa.int32(), "Tokens of the prefix that an inserted hash stands for; -1 elsewhere."),
        Column(
            "verified_tokens",
            pa.int32(),
            "Tokens of the request that were final when the hash was inserted; -1 elsewhere.",
        ),
        Column("block_hash", pa.int64(), "Keyed hash of the inserted block hash; 0 elsewhere."),
        BLOCKS,
    ),
)
