"""What a workload holds: its size, its arrivals and how much of its prompts could be reused."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vstate.schemas.workload import (
    HashedBlocks,
    MediaSegment,
    WorkloadRequest,
    iter_workload,
    scan_workload,
    text_tokens,
)

WINDOW_S = 10.0
"""Length of the windows whose arrivals are counted."""


@dataclass(frozen=True)
class Distribution:
    """Tokens per request; a percentile is a value that occurs (nearest rank)."""

    p50: int
    p95: int
    p99: int
    max: int
    mean: float
    total: int


@dataclass(frozen=True)
class WorkloadSummary:
    """Figures of a workload.

    Attributes:
        lines: Requests and aborts.
        requests: Requests.
        aborts: Requests that a client gives up.
        input_tokens: Prompts, without what media items take, which is the model's affair.
        output_tokens: Answers.
        span_s: Seconds from the first to the last arrival that is a moment; None without two moments apart.
        mean_rate: Requests that arrive at a moment, over the span, per second.
        dispersion: Variance over mean of the arrivals in whole windows of 10 s; 1 for a Poisson process, None where
            there are no two windows.
        reusable_share: Share of the input tokens that a cache which forgets nothing would hold when the request is
            read, in the order of the file.
        closed_loop_share: Share of the requests that wait for another one.
        media_items: Items by kind.
        block_tokens: Tokens that lengths in blocks were taken to mean.
    """

    lines: int
    requests: int
    aborts: int
    input_tokens: Distribution
    output_tokens: Distribution
    span_s: float | None
    mean_rate: float | None
    dispersion: float | None
    reusable_share: float
    closed_loop_share: float
    media_items: dict[str, int]
    block_tokens: int


class EndlessCache:
    """Holds every prefix of every prompt it has seen."""

    def __init__(self, block_tokens: int) -> None:
        """Take lengths in blocks to mean ``block_tokens``."""
        self._block_tokens = block_tokens
        self._prefixes: dict[Hashable, int] = {}

    def add(self, request: WorkloadRequest) -> int:
        """Keep a prompt and return how many of its leading tokens were known before."""
        prefix, reused, known = 0, 0, True
        for piece, tokens in _pieces(request, self._block_tokens):
            key = (prefix, piece, tokens)
            found = self._prefixes.get(key)
            known = known and found is not None
            reused += tokens if known else 0
            if found is None:
                found = self._prefixes[key] = len(self._prefixes) + 1
            prefix = found
        return reused


def _pieces(request: WorkloadRequest, block_tokens: int) -> Iterator[tuple[Hashable, int]]:
    """Return the parts of a prompt that are equal or not as a whole, and their tokens; blocks one by one."""
    for part in request.prompt:
        if isinstance(part, MediaSegment):
            yield part.media, 0
        elif isinstance(part, HashedBlocks):
            left = part.tokens
            for first, count in part.block_ranges:
                for block in range(first, first + count):
                    yield block, min(left, part.block_tokens)
                    left -= part.block_tokens
        else:
            yield part.name, part.length.resolve(block_tokens)


def summarize(path: Path, block_tokens: int) -> WorkloadSummary:
    """Read a workload and sum it up.

    Args:
        path: The workload, JSONL, perhaps compressed.
        block_tokens: Tokens that lengths in blocks are taken to mean.

    Raises:
        VstateError: The file cannot be read, or is no sound workload.
    """
    scan_workload(path)
    cache = EndlessCache(block_tokens)
    inputs, outputs, moments = array("q"), array("q"), array("d")
    media: Counter[str] = Counter()
    reusable = aborts = waiting = 0
    for line in iter_workload(path):
        if not isinstance(line, WorkloadRequest):
            aborts += 1
            continue
        media.update(part.media.kind for part in line.prompt if isinstance(part, MediaSegment))
        inputs.append(text_tokens(line, block_tokens))
        outputs.append(line.output.resolve(block_tokens))
        reusable += cache.add(line)
        if line.when.at_s is not None:
            moments.append(line.when.at_s)
        waiting += line.when.after is not None
    span_s = max(moments) - min(moments) if moments else 0.0
    return WorkloadSummary(
        lines=len(inputs) + aborts,
        requests=len(inputs),
        aborts=aborts,
        input_tokens=_distribution(inputs),
        output_tokens=_distribution(outputs),
        span_s=span_s or None,
        mean_rate=len(moments) / span_s if span_s else None,
        dispersion=_dispersion(moments, span_s),
        reusable_share=reusable / (sum(inputs) or 1),
        closed_loop_share=waiting / len(inputs),
        media_items=dict(sorted(media.items())),
        block_tokens=block_tokens,
    )


def _distribution(values: array[int]) -> Distribution:
    ordered = sorted(values)

    def percentile(percent: int) -> int:
        return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]

    total = sum(ordered)
    return Distribution(percentile(50), percentile(95), percentile(99), ordered[-1], total / len(ordered), total)


def _dispersion(moments: array[float], span_s: float) -> float | None:
    """Return the index of dispersion of the arrivals in whole windows (Cox, Lewis 1966)."""
    windows = int(span_s // WINDOW_S)
    if windows <= 1:
        return None
    first = min(moments)
    counts = Counter(int((moment - first) // WINDOW_S) for moment in moments)
    mean = sum(counts[window] for window in range(windows)) / windows
    return sum((counts[window] - mean) ** 2 for window in range(windows)) / windows / mean
