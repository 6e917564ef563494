"""The table `step`: the engine's own books at every step boundary."""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

from vstate.schemas.table import MODELLED_TIME, SEQ, TIME, Column, Table


class StepKind(IntEnum):
    """Which boundary of a step the row stands at."""

    SCHEDULED = 0
    COMPLETED = 1


STEP_TABLE = Table(
    "step",
    "One row at the end of each `schedule()` and one at the end of the `update_from_output()` that "
    "belongs to it. The counts are the engine's own; replay is compared with them.",
    (
        SEQ,
        Column("step", pa.int64(), "Number of the `schedule()` call, from 1; a `completed` row names its own."),
        Column("kind", pa.int8(), "Boundary of the step.", StepKind),
        TIME,
        MODELLED_TIME,
        Column("running", pa.int32(), "Requests in the engine's running list."),
        Column("waiting", pa.int32(), "Requests in the engine's waiting queues."),
        Column("deferred_blocks", pa.int32(), "Blocks that wait in the engine's deferred frees."),
        Column("scheduled_tokens", pa.int32(), "Tokens scheduled in this step; 0 in `completed` rows."),
        Column("encoder_free_embeds", pa.int32(), "Free embeddings of the encoder cache; -1 without one."),
        Column("free_blocks", pa.list_(pa.int32()), "Free blocks of each pool, from the pool's own counter."),
        Column("cached_hashes", pa.list_(pa.int32()), "Entries of each pool's prefix-cache map."),
    ),
)
