"""Claude Code sessions captured by a proxy: token counts, equal prefix blocks and think times, as a closed loop.

Source: https://github.com/callanjfox/kv-cache-tester, docs/trace_replay_tester.md and traces/. How a sub-agent's
requests stand inside its session's is seen in the files only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vstate.schemas.errors import VstateError
from vstate.schemas.workload import Trigger, WorkloadRequest
from vstate.tracer.workloads.importers.reading import Fields, json_rows, trace_lines
from vstate.tracer.workloads.importers.rows import ImportOptions, Tally, TraceRow, checked, request, rounds

BLOCK_TOKENS = 64
BLOCK_IDS_PER_SESSION = 2**28
"""Range of block ids that each original file of its own numbering gets; 4096 of them fit into one round."""
HEADER = (
    "source format: Claude Code sessions (callanjfox/kv-cache-tester traces, Apache 2.0)",
    f"measured: input tokens; output tokens; which full blocks of {BLOCK_TOKENS} tokens are equal inside a session;",
    "  think times, up to --max-think; a request that has none follows at once",
    "the importer's choice: a closed loop; sessions are dealt to --users users in the order of the file, a user runs",
    "  one after the other, and a request waits for the answer to the one before it in its session;",
    "  sub-agents take their turn in the order of the file and do not run beside the main agent;",
    "  the tokens inside a block, which follow from its id; tokens behind the full blocks are a request's own;",
    "  what sessions share with each other is not in the source, so reuse is understated",
)
OPTIONS = frozenset({"users", "max_think_s"})


def read(path: Path, options: ImportOptions, tally: Tally) -> Iterator[WorkloadRequest]:
    """Read normalized rows (JSONL), one original session (``.json``), or a folder of those.

    A normalized row has ``session_id``, ``input_tokens``, ``output_tokens``, ``prefix_block_ranges`` and perhaps
    ``think_time_s``; the rows of a session stand together. An original request has ``in``, ``out``, ``hash_ids`` and
    perhaps ``think_time``, or is of type ``subagent`` and holds requests.

    Raises:
        VstateError: The file cannot be read, or a row is not of the format.
    """
    original = path.is_dir() or path.name.removesuffix(".gz").endswith(".json")
    return _closed_loop(rounds(lambda: _sessions(path) if original else _rows(path), options, tally), options)


def _closed_loop(rows: Iterator[TraceRow], options: ImportOptions) -> Iterator[WorkloadRequest]:
    """Let each row wait for the one before it of the same user."""
    last_of_user: list[str | None] = [None] * options.users
    session, sessions = "", 0
    for row in rows:
        if row.session != session:
            session, sessions = row.session, sessions + 1
        user = (sessions - 1) % options.users
        before = last_of_user[user]
        think_s = round(min(row.think_s, options.max_think_s) / options.speed, 6)
        yield request(row, Trigger(at_s=0.0) if before is None else Trigger(after=before, delay_s=think_s))
        last_of_user[user] = row.name


def _rows(path: Path) -> Iterator[TraceRow]:
    session, turn = "", 0
    ended: set[str] = set()
    for fields in json_rows(path):
        name = fields.text("session_id")
        if name != session:
            if name in ended:
                raise fields.fault(f"session {name} goes on behind another one; sort the file by session")
            ended.add(name)
            session, turn = name, 0
        turn += 1
        row = TraceRow(
            name=f"{session}/{turn}",
            at_s=0.0,
            input_tokens=fields.count("input_tokens"),
            output_tokens=fields.count("output_tokens"),
            ranges=fields.block_ranges("prefix_block_ranges"),
            block_tokens=BLOCK_TOKENS,
            session=session,
            think_s=fields.number("think_time_s") if "think_time_s" in fields else 0.0,
        )
        yield checked(row, fields)


def _sessions(path: Path) -> Iterator[TraceRow]:
    """Read original files, a folder's by name."""
    if not path.is_dir():
        yield from _session(path, 0)
        return
    for number, file in enumerate(sorted([*path.glob("*.json"), *path.glob("*.json.gz")])):
        yield from _session(file, number)


def _session(path: Path, number: int) -> Iterator[TraceRow]:
    try:
        session = json.loads("".join(trace_lines(path)))
    except ValueError as error:
        raise VstateError(f"{path}: not JSON: {error}") from error
    if not isinstance(session, dict) or not isinstance(session.get("requests"), list):
        raise VstateError(f"{path}: not a session with a list of requests")
    described = Fields(str(path), session)
    name, block_tokens = described.text("id"), described.count("block_size")
    if not block_tokens:
        raise described.fault("block_size is 0")
    shared = session.get("hash_id_scope") == "global"
    first_block = 0 if shared else number * BLOCK_IDS_PER_SESSION
    for turn, values in enumerate(_flat(session["requests"]), 1):
        fields = Fields(f"{path}: request {turn}", values if isinstance(values, dict) else {})
        tokens, ranges = fields.count("in"), fields.block_ids("hash_ids")
        if not shared and any(sum(run) > BLOCK_IDS_PER_SESSION for run in ranges):
            raise fields.fault("hash_ids holds an id of 2^28 or above, too large for one session of many")
        row = TraceRow(
            name=f"{name}/{turn}",
            at_s=0.0,
            input_tokens=tokens,
            output_tokens=fields.count("out"),
            ranges=tuple((first + first_block, count) for first, count in ranges),
            block_tokens=block_tokens,
            session=name,
            think_s=fields.number("think_time") if "think_time" in fields else 0.0,
        )
        yield checked(row, fields)


def _flat(requests: list[Any]) -> Iterator[Any]:
    """Return the requests of a session, those of a sub-agent where it stands."""
    for entry in requests:
        if isinstance(entry, dict) and isinstance(entry.get("requests"), list):
            yield from _flat(entry["requests"])
        else:
            yield entry
