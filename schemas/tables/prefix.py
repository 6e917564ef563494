"""The table `prefix`: which group could have served how much of a prompt."""

from __future__ import annotations

import pyarrow as pa

from vstate.schemas.table import GROUP, REQUEST_KEY, SEQ, STEP, Column, Table

PREFIX = Table(
    "prefix",
    "One row per group at each admission of a model with several groups, where any group had a part of the prompt. The "
    "groups whose `group_hit_tokens` is the least vetoed the rest. No group is asked beyond the longest hit of all.",
    (
        SEQ,
        STEP,
        REQUEST_KEY,
        Column("attempt", pa.int32(), "Number of the admission the lookup was for."),
        GROUP,
        Column("group_hit_tokens", pa.int32(), "Tokens this group alone could have served, up to the longest hit."),
        Column("longest_hit_tokens", pa.int32(), "Longest hit of any group."),
        Column("hit_tokens", pa.int32(), "Tokens that the engine took."),
    ),
)
