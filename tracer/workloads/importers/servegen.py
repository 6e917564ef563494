"""ServeGen: offline batches of Alibaba Cloud Model Studio, and the requests that the tool makes itself.

Source: https://github.com/alibaba/ServeGen, data/offline/README.md; columns of the CSV that the tool writes: its
function ``save_requests_to_csv`` and the test of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vstate.schemas.workload import WorkloadRequest
from vstate.tracer.workloads.importers.reading import csv_rows, json_rows
from vstate.tracer.workloads.importers.rows import ImportOptions, Tally, TraceRow, open_loop

HEADER = (
    "source format: stat trace of an offline batch (alibaba/ServeGen data/offline, trace_d to trace_f; JSONL),",
    "  or requests that the tool made (CSV)",
    "measured: of a batch, input tokens, output tokens, the order in the submitted file",
    "synthetic: all of a CSV, which ServeGen draws from distributions that were measured",
    "the importer's choice: all requests of a batch arrive at once; images count as the text tokens they took;",
    "  content, of which the source has none, so every prompt has tokens of its own and none is reused",
)
OPTIONS: frozenset[str] = frozenset()


def read(path: Path, options: ImportOptions, tally: Tally) -> Iterator[WorkloadRequest]:
    """Read JSONL of ``request_id``, ``input_length`` and ``output_length``, or the tool's CSV.

    That has ``request_id``, ``timestamp`` (s), ``input_tokens`` and ``output_tokens``.

    The content-hash traces published beside them say no output length and are refused.

    Raises:
        VstateError: The file cannot be read, or a row is not of the format.
    """
    made = path.name.removesuffix(".gz").endswith(".csv")
    source = _made if made else _batch
    return open_loop(lambda: source(path), options, tally)


def _made(path: Path) -> Iterator[TraceRow]:
    for fields in csv_rows(path):
        tokens = fields.count("input_tokens"), fields.count("output_tokens")
        yield TraceRow(f"servegen-{fields.text('request_id')}", fields.number("timestamp"), *tokens)


def _batch(path: Path) -> Iterator[TraceRow]:
    for fields in json_rows(path):
        if "output_length" not in fields and "hash_ids" in fields:
            raise fields.fault("no output_length; content-hash traces have none, import one of trace_d to trace_f")
        tokens = fields.count("input_length"), fields.count("output_length")
        yield TraceRow(f"batch-{fields.text('request_id')}", 0.0, *tokens)
