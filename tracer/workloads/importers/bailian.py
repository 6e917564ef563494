"""Qwen-Bailian traces of Alibaba Cloud: arrivals, chats, token counts and the ids of equal prefix blocks.

Source: https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon, README.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vstate.schemas.workload import WorkloadRequest
from vstate.tracer.workloads.importers.reading import json_rows
from vstate.tracer.workloads.importers.rows import ImportOptions, Tally, TraceRow, checked, open_loop

BLOCK_TOKENS = 16
HEADER = (
    "source format: Qwen-Bailian usage trace (alibaba-edu/qwen-bailian-usagetraces-anon, Apache 2.0)",
    f"measured: arrivals; input tokens; output tokens; which blocks of {BLOCK_TOKENS} tokens are equal",
    "the importer's choice: an open loop, so that a chat's next turn does not wait for the answer before it;",
    "  the tokens inside a block, which follow from its id; images and files count as the text tokens they took",
)
OPTIONS: frozenset[str] = frozenset()


def read(path: Path, options: ImportOptions, tally: Tally) -> Iterator[WorkloadRequest]:
    """Read ``chat_id``, ``timestamp`` (s), ``input_length``, ``output_length`` and ``hash_ids``.

    Raises:
        VstateError: The file cannot be read, or a row is not of the format.
    """
    return open_loop(lambda: _rows(path), options, tally)


def _rows(path: Path) -> Iterator[TraceRow]:
    for fields in json_rows(path):
        tokens = fields.count("input_length"), fields.count("output_length")
        name = f"chat-{fields.text('chat_id')}"
        row = TraceRow(name, fields.number("timestamp"), *tokens, fields.block_ids("hash_ids"), BLOCK_TOKENS)
        yield checked(row, fields)
