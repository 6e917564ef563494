"""Files of token counts without arrival times, such as the length statistics of microsoft/vidur."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from vstate.schemas.errors import VstateError
from vstate.schemas.workload import WorkloadRequest
from vstate.tracer.workloads.importers.reading import csv_rows
from vstate.tracer.workloads.importers.rows import ImportOptions, Tally, TraceRow, arriving, rounds

HEADER = (
    "source format: token counts as CSV (such as microsoft/vidur data/processed_traces, MIT)",
    "measured: input tokens; output tokens",
    "synthetic: arrivals, a Poisson process of the rate and seed given here",
    "the importer's choice: content; the source has none, so every prompt has tokens of its own and none is reused",
)
OPTIONS = frozenset({"rate", "seed"})
COLUMNS = ("input_tokens", "output_tokens")
VIDUR_COLUMNS = ("num_prefill_tokens", "num_decode_tokens")


def read(path: Path, options: ImportOptions, tally: Tally) -> Iterator[WorkloadRequest]:
    """Read columns ``input_tokens,output_tokens`` or ``num_prefill_tokens,num_decode_tokens``; others are skipped.

    Raises:
        VstateError: No rate is given, the file cannot be read, or a row is not of the format.
    """
    if options.rate is None:
        raise VstateError("a file of lengths has no arrival times; give the requests per second with --rate")
    return _arriving(rounds(lambda: _rows(path), options, tally), options.rate, options)


def _arriving(rows: Iterator[TraceRow], rate: float, options: ImportOptions) -> Iterator[WorkloadRequest]:
    generator = random.Random(options.seed)
    at_s = 0.0
    for row in rows:
        at_s += generator.expovariate(rate)
        yield arriving(row._replace(at_s=at_s), options.speed)


def _rows(path: Path) -> Iterator[TraceRow]:
    for number, fields in enumerate(csv_rows(path), 1):
        inputs, outputs = VIDUR_COLUMNS if VIDUR_COLUMNS[0] in fields else COLUMNS
        yield TraceRow(f"lengths-{number}", 0.0, fields.count(inputs), fields.count(outputs))
