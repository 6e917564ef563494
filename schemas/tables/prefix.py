"""The table `prefix`: prefix-cache lookups."""

from __future__ import annotations

import pyarrow as pa

from vstate.schemas.table import GROUP, REQUEST_KEY, SEQ, STEP, Column, Table

PREFIX = Table(
    "prefix",
    "One row per group and attempt of a model with several groups: how far the group alone would have hit.",
    (
        SEQ,
        STEP,
        REQUEST_KEY,
        Column("attempt", pa.int32(), "Number of the admission the lookup was for."),
        GROUP,
        Column("group_hit_tokens", pa.int32(), "Tokens this group alone could have served."),
        Column("hit_tokens", pa.int32(), "Tokens that all groups agreed on."),
    ),
    written=False,
)
