"""Azure LLM inference traces of 2023 and 2024: arrivals and token counts, no content.

Source: https://github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and its sibling of 2024.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from vstate.schemas.workload import WorkloadRequest
from vstate.tracer.workloads.importers.reading import Fields, csv_rows
from vstate.tracer.workloads.importers.rows import ImportOptions, Tally, TraceRow, open_loop

HEADER = (
    "source format: Azure LLM inference trace (Azure/AzurePublicDataset, CC BY 4.0)",
    "measured: arrivals, counted from the first row; input tokens; output tokens",
    "the importer's choice: content; the source has none, so every prompt has tokens of its own and none is reused",
)
OPTIONS: frozenset[str] = frozenset()


def read(path: Path, options: ImportOptions, tally: Tally) -> Iterator[WorkloadRequest]:
    """Read columns ``TIMESTAMP,ContextTokens,GeneratedTokens`` or ``arrival_s,input_tokens,output_tokens``.

    Raises:
        VstateError: The file cannot be read, or a row is not of the format.
    """
    return open_loop(lambda: _rows(path), options, tally)


def _rows(path: Path) -> Iterator[TraceRow]:
    first: datetime | None = None
    for number, fields in enumerate(csv_rows(path), 1):
        if "TIMESTAMP" not in fields:
            counts = fields.count("input_tokens"), fields.count("output_tokens")
            yield TraceRow(f"azure-{number}", fields.number("arrival_s"), *counts)
            continue
        moment = _moment(fields)
        first = first or moment
        if moment < first:
            raise fields.fault("TIMESTAMP is before that of the first row; sort the file by time")
        counts = fields.count("ContextTokens"), fields.count("GeneratedTokens")
        yield TraceRow(f"azure-{number}", (moment - first).total_seconds(), *counts)


def _moment(fields: Fields) -> datetime:
    """Return the row's time stamp; files of 2023 name no time zone, those of 2024 say UTC."""
    text = fields.text("TIMESTAMP")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise fields.fault(f"TIMESTAMP is {text!r}, not a time such as 2023-11-16 18:15:46.6805900") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
