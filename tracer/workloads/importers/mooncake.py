"""Mooncake traces of Kimi: arrivals, token counts and the ids of equal prefix blocks.

Source: https://github.com/kvcache-ai/Mooncake, FAST25-release/traces.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vstate.schemas.workload import WorkloadRequest
from vstate.tracer.workloads.importers.reading import json_rows
from vstate.tracer.workloads.importers.rows import ImportOptions, Tally, TraceRow, checked, open_loop

BLOCK_TOKENS = 512
HEADER = (
    "source format: Mooncake trace (kvcache-ai/Mooncake FAST25-release/traces, Apache 2.0)",
    "measured: arrivals (the conversation trace has them on ticks of about 3 s); input tokens; output tokens;",
    f"  which blocks of {BLOCK_TOKENS} tokens are equal, the last of a prompt cut short",
    "the importer's choice: the tokens inside a block, which follow from its id;",
    "  tokens behind the known blocks are a request's own",
)
OPTIONS: frozenset[str] = frozenset()


def read(path: Path, options: ImportOptions, tally: Tally) -> Iterator[WorkloadRequest]:
    """Read ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids``, or their normalized form.

    That is ``arrival_s``, ``input_tokens``, ``output_tokens`` and ``prefix_block_ids``.

    Raises:
        VstateError: The file cannot be read, or a row is not of the format.
    """
    return open_loop(lambda: _rows(path), options, tally)


def _rows(path: Path) -> Iterator[TraceRow]:
    for number, fields in enumerate(json_rows(path), 1):
        name = f"mooncake-{number}"
        if "arrival_s" in fields:
            tokens = fields.count("input_tokens"), fields.count("output_tokens")
            ranges = fields.block_ids("prefix_block_ids")
            row = TraceRow(name, fields.number("arrival_s"), *tokens, ranges, BLOCK_TOKENS)
        else:
            tokens = fields.count("input_length"), fields.count("output_length")
            ranges = fields.block_ids("hash_ids")
            row = TraceRow(name, fields.number("timestamp") / 1000, *tokens, ranges, BLOCK_TOKENS)
        yield checked(row, fields)
