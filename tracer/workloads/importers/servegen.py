"""Offline batches of Alibaba Cloud Model Studio, published with ServeGen: token counts, no arrivals.

Source: https://github.com/alibaba/ServeGen, data/offline/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vstate.schemas.workload import WorkloadRequest
from vstate.tracer.workloads.importers.reading import json_rows
from vstate.tracer.workloads.importers.rows import ImportOptions, Tally, TraceRow, arriving, rounds

HEADER = (
    "source format: stat trace of an offline batch (alibaba/ServeGen data/offline, trace_d to trace_f)",
    "measured: input tokens; output tokens; the order in the submitted file",
    "the importer's choice: all requests of the batch arrive at once; images count as the text tokens they took;",
    "  content, of which the source has none, so every prompt has tokens of its own and none is reused",
)
OPTIONS: frozenset[str] = frozenset()


def read(path: Path, options: ImportOptions, tally: Tally) -> Iterator[WorkloadRequest]:
    """Read ``request_id``, ``input_length`` and ``output_length``.

    The content-hash traces published beside them say no output length and are refused.

    Raises:
        VstateError: The file cannot be read, or a row is not of the format.
    """
    return (arriving(row, options.speed) for row in rounds(lambda: _rows(path), options, tally))


def _rows(path: Path) -> Iterator[TraceRow]:
    for fields in json_rows(path):
        if "output_length" not in fields and "hash_ids" in fields:
            raise fields.fault("no output_length; content-hash traces have none, import one of trace_d to trace_f")
        tokens = fields.count("input_length"), fields.count("output_length")
        yield TraceRow(f"batch-{fields.text('request_id')}", 0.0, *tokens)
