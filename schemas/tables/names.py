"""The table `names`: what the integer keys stand for."""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

from vstate.schemas.table import SEQ, Column, Table


class NameKind(IntEnum):
    """What a key names."""

    REQUEST = 0
    EXTERNAL = 1
    PARENT = 2
    REASON = 3


NAMES = Table(
    "names",
    "One row per name. A name is written before any chunk that refers to it and again in each segment; "
    "a key without a name is shown as `#key`.",
    (
        SEQ,
        Column("kind", pa.int8(), "What the key names.", NameKind),
        Column("key", pa.int64(), "The key; request, external and parent names share the request's key."),
        Column("value", pa.string(), "The name."),
    ),
)
