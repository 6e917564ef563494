"""Rows of a trace in one form for all formats, and the requests of a workload that they become."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from vstate.schemas.errors import VstateError
from vstate.schemas.workload import HashedBlocks, Length, PromptSegment, Segment, Trigger, WorkloadRequest
from vstate.tracer.workloads.importers.reading import Fields

BLOCK_IDS_PER_ROUND = 2**40
"""Each repetition of a file takes its block ids from a range of its own, so that no reuse is made up."""


@dataclass(frozen=True)
class ImportOptions:
    """What a person chooses when a trace is imported.

    Attributes:
        limit: Requests wanted; None takes all.
        loop: Whether the file is repeated until there are ``limit`` requests.
        speed: What times are divided by.
        users: Users who share the sessions of a closed loop.
        max_think_s: Longest think time, in seconds of the trace.
        rate: Requests per second that arrive, for files without arrival times.
        seed: Seed of those arrivals.
    """

    limit: int | None = None
    loop: bool = False
    speed: float = 1.0
    users: int = 1
    max_think_s: float = 60.0
    rate: float | None = None
    seed: int = 0


@dataclass
class Tally:
    """What an import changed.

    Attributes:
        without_input: Rows of 0 input tokens, which are left out.
        without_output: Rows of 0 output tokens, which ask for 1.
    """

    without_input: int = 0
    without_output: int = 0


class TraceRow(NamedTuple):
    """One request of a trace.

    Attributes:
        name: What tells it from the other requests of the file.
        at_s: Arrival, in seconds; 0 where the file has none.
        input_tokens: Tokens of the prompt.
        output_tokens: Tokens of the answer.
        ranges: Known block ids of the prompt's beginning, as runs (first, count).
        block_tokens: Tokens of a block.
        session: Name of the session the request belongs to, in a closed loop.
        think_s: Seconds between the previous answer and this request, in a closed loop.
    """

    name: str
    at_s: float
    input_tokens: int
    output_tokens: int
    ranges: tuple[tuple[int, int], ...] = ()
    block_tokens: int = 1
    session: str = ""
    think_s: float = 0.0


def checked(row: TraceRow, fields: Fields) -> TraceRow:
    """Return ``row`` when its blocks fit its tokens.

    Raises:
        VstateError: It has blocks that lie wholly behind its last token.
    """
    blocks = sum(count for _, count in row.ranges)
    if (blocks - 1) * row.block_tokens >= max(row.input_tokens, 1):
        raise fields.fault(f"{blocks} blocks of {row.block_tokens} tokens for {row.input_tokens} input tokens")
    return row


def rounds(rows: Callable[[], Iterator[TraceRow]], options: ImportOptions, tally: Tally) -> Iterator[TraceRow]:
    """Return the rows wanted, from as many rounds through the file as it takes.

    A round begins one mean gap after the last arrival of the one before.

    Args:
        rows: Opens the file anew.
        options: Names the number of requests and whether to repeat the file.
        tally: Counts what is changed.

    Raises:
        VstateError: The file holds no usable row, or block ids too large for a range per round.
    """
    return islice(_all_rounds(rows, options, tally), options.limit)


def _all_rounds(rows: Callable[[], Iterator[TraceRow]], options: ImportOptions, tally: Tally) -> Iterator[TraceRow]:
    number, first_s, last_s = 0, float("inf"), 0.0
    for row in _usable(rows(), tally):
        number, first_s, last_s = number + 1, min(first_s, row.at_s), max(last_s, row.at_s)
        if options.loop and any(sum(run) > BLOCK_IDS_PER_ROUND for run in row.ranges):
            raise VstateError(f"request {row.name} has block ids above 2^40, too large for --loop; import without it")
        yield row
    if not number:
        raise VstateError("the trace holds no request with input tokens")
    span_s = last_s - first_s
    period_s = span_s + (span_s / (number - 1) if number > 1 else 0.0)
    turn = 2
    while options.loop:
        for row in _usable(rows(), tally):
            yield _in_round(row, turn, period_s)
        turn += 1


def _usable(rows: Iterator[TraceRow], tally: Tally) -> Iterator[TraceRow]:
    for row in rows:
        if not row.input_tokens:
            tally.without_input += 1
        elif not row.output_tokens:
            tally.without_output += 1
            yield row._replace(output_tokens=1)
        else:
            yield row


def _in_round(row: TraceRow, turn: int, period_s: float) -> TraceRow:
    """Return ``row`` as the round ``turn``, counted from 1, has it."""
    shift = (turn - 1) * BLOCK_IDS_PER_ROUND
    return row._replace(
        name=f"{row.name}-{turn}",
        at_s=row.at_s + (turn - 1) * period_s,
        ranges=tuple((first + shift, count) for first, count in row.ranges),
        session=f"{row.session}-{turn}",
    )


def open_loop(
    rows: Callable[[], Iterator[TraceRow]], options: ImportOptions, tally: Tally
) -> Iterator[WorkloadRequest]:
    """Return the requests of the rows wanted, each arriving by the clock (see `rounds`)."""
    return (arriving(row, options.speed) for row in rounds(rows, options, tally))


def arriving(row: TraceRow, speed: float) -> WorkloadRequest:
    """Return the request of a row that arrives by the clock."""
    return request(row, Trigger(at_s=round(row.at_s / speed, 6)))


def request(row: TraceRow, when: Trigger) -> WorkloadRequest:
    """Return the request of a row: its known blocks, and tokens of its own behind them."""
    covered = min(sum(count for _, count in row.ranges) * row.block_tokens, row.input_tokens)
    prompt: list[PromptSegment] = []
    if covered:
        prompt.append(HashedBlocks(block_ranges=row.ranges, block_tokens=row.block_tokens, tokens=covered))
    if covered < row.input_tokens:
        prompt.append(Segment(name=row.name, length=Length(tokens=row.input_tokens - covered)))
    return WorkloadRequest(id=row.name, when=when, prompt=tuple(prompt), output=Length(tokens=row.output_tokens))
