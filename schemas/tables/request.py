"""The table `request`: arrivals, admissions and ends."""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

from vstate.schemas.table import MODELLED_TIME, REQUEST_KEY, SEQ, STEP, TIME, Column, Table


class RequestKind(IntEnum):
    """What happened to the request."""

    ARRIVE = 0
    ADMIT = 1
    REFUSE = 2
    PREFILL_CHUNK = 3
    PREEMPT = 4
    RESUME = 5
    EXTEND = 6
    FINISH = 7
    ABORT = 8


REQUEST = Table(
    "request",
    "One row per change of a request's life. `refuse` is written at the first refusal of an attempt "
    "only; `prefill_chunk` for each scheduled chunk that does not end the prompt, and for the one that does.",
    (
        SEQ,
        STEP,
        Column("kind", pa.int8(), "What happened.", RequestKind),
        TIME,
        MODELLED_TIME,
        REQUEST_KEY,
        Column("attempt", pa.int32(), "Number of the admission this row belongs to, from 1."),
        Column("prompt_tokens", pa.int32(), "Tokens of the prompt."),
        Column("max_tokens", pa.int32(), "Output tokens the request may produce at most."),
        Column("total_tokens", pa.int32(), "Prompt and output tokens known at this moment."),
        Column("computed_tokens", pa.int32(), "Tokens whose state the engine counts as computed."),
        Column("scheduled_tokens", pa.int32(), "Tokens scheduled for the request in this step; -1 where none."),
        Column(
            "hit_tokens",
            pa.int32(),
            "Tokens taken from the prefix cache, or loaded by a connector, at admission; -1 elsewhere.",
        ),
        Column("media_items", pa.int32(), "Media items of the request."),
        Column("reason", pa.int64(), "Key in `names` of the end or refusal reason; -1 where none."),
    ),
)
