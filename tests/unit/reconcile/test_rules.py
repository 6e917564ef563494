"""Each rule with traces that trip it and near misses; and the headers.

All traces are engines of one run, reconciled once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.small import SmallTrace, one_request
from support.traces import Row, process_manifest, write_process
from vstate.reconcile.cache import update_cache
from vstate.reconcile.estimates import judge_estimates
from vstate.reconcile.replay import replayed
from vstate.reconcile.rules import SENTENCES, parse_rule, read_rules
from vstate.reconcile.streams import find_run
from vstate.schemas.errors import VstateError
from vstate.schemas.summary import Summary
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.vocabulary import Holder

Violation = tuple[str, str, str]


@dataclass(frozen=True)
class Case:
    """A trace and what the rules must say of it: (rule, severity, sentence), nothing else."""

    name: str
    rows: list[Row]
    expected: tuple[Violation, ...] = ()


def illegal(rule: str, sentence: str) -> tuple[Violation, ...]:
    return ((rule, "illegal", sentence),)


def trace(*steps: Callable[[SmallTrace], None]) -> list[Row]:
    """Rows of one step in which the given things happen."""
    small = SmallTrace()
    small.begins()
    for step in steps:
        step(small)
    return small.rows


def cached(entries: int) -> Callable[[SmallTrace], None]:
    return lambda small: setattr(small, "cached", entries)


def call(kind: BlockKind, block: int, key: int = 0, **cells: int) -> Callable[[SmallTrace], None]:
    group = 0 if key >= 0 else -1
    return lambda small: small.calls(kind, [block], key, group, **cells)


def allocates(key: int, block: int) -> Callable[[SmallTrace], None]:
    return lambda small: small.allocates(key, [block])


def frees(key: int, block: int) -> Callable[[SmallTrace], None]:
    return lambda small: small.frees(key, [block])


def schedules(running: int = 0) -> Callable[[SmallTrace], None]:
    return lambda small: small.schedules(running=running)


# I1: the bound of these tests is the request's `max_tokens`, in blocks.


def bounded(blocks: int, new: int = 3) -> list[Row]:
    """A request that holds 3 blocks in its prefill and 4 later."""
    small = SmallTrace()
    small.arrives(0)
    small.begins()
    small.estimates(0, new=new)
    small.allocates(0, [1, 2, 3])
    small.admits(0, output=blocks)
    small.prefills(0, scheduled=10)
    small.schedules(running=1)
    small.begins()
    small.allocates(0, [4])
    small.schedules(running=1)
    small.ends(0)
    small.frees(0, [1, 2, 3, 4])
    small.completes()
    return small.rows


I1_CASES = [
    Case(
        "bound below the peak",
        bounded(3),
        (
            (
                "I1",
                "undercount",
                "request req-0 (attempt 1) held 4 blocks of group 0 in pool 0 over its life, vstate estimated 3",
            ),
        ),
    ),
    Case("bound equals the peak", bounded(4)),
    Case(
        "gate below the peak of the prefill",
        bounded(4, new=2),
        (
            (
                "I1",
                "info",
                "request req-0 (attempt 1) held 3 blocks of group 0 in pool 0 over its prefill, stock estimated 2",
            ),
        ),
    ),
    Case("gate below the peak of the life only", bounded(4, new=3)),
]


# I2


def free_count_off() -> list[Row]:
    small = SmallTrace()
    small.begins()
    small.free_blocks -= 1
    small.schedules()
    small.completes()
    return small.rows


HASH = {"block_hash": 77}
I2_CASES = [
    Case(
        "other free blocks",
        free_count_off(),
        illegal("I2", "step 1 (scheduled): pool 0 has 15 free blocks by replay, 14 by the engine's own counter"),
    ),
    Case(
        "other cached hashes",
        trace(call(BlockKind.CACHE_INSERT, 3, **HASH), schedules()),
        illegal("I2", "step 1 (scheduled): pool 0 has 1 prefix-cache entries by replay, 0 in the engine's map"),
    ),
    Case(
        "one key on two blocks is one entry",
        trace(
            call(BlockKind.CACHE_INSERT, 3, **HASH),
            call(BlockKind.CACHE_INSERT, 4, **HASH),
            call(BlockKind.CACHE_INSERT, 4, **HASH),
            cached(1),
            schedules(),
            call(BlockKind.CACHE_REMOVE, 3, key=-1),
            schedules(),
        ),
    ),
    Case(
        "one release too many",
        trace(allocates(0, 5), frees(0, 5), call(BlockKind.FREE, 5), schedules()),
        illegal("I2", "step 1: block 5 of pool 0 was released 1 times more than it was taken"),
    ),
    Case(
        "a held block is handed out",
        trace(allocates(0, 5), call(BlockKind.ALLOC, 5, key=1), schedules(running=2)),
        illegal("I2", "step 1: block 5 of pool 0 was handed out while 1 references to it were held"),
    ),
    Case(
        "a block that is handed out stays cached",
        trace(
            call(BlockKind.CACHE_INSERT, 5, **HASH),
            call(BlockKind.CACHE_INSERT, 6, **HASH),
            cached(1),
            allocates(0, 5),
            schedules(running=1),
        ),
        illegal("I2", "step 1: block 5 of pool 0 was handed out and stayed in the prefix cache"),
    ),
    Case(
        "a block leaves the cache without being in it",
        trace(call(BlockKind.EVICT, 5, key=-1), schedules()),
        illegal("I2", "step 1: block 5 of pool 0 left the prefix cache, in which replay does not have it"),
    ),
    Case(
        "shared, evicted and allocated again",
        trace(
            allocates(0, 5),
            call(BlockKind.CACHE_INSERT, 5, **HASH),
            cached(1),
            call(BlockKind.TOUCH, 5, key=1),
            schedules(running=2),
            call(BlockKind.FREE, 5),
            schedules(running=1),
            frees(1, 5),
            call(BlockKind.EVICT, 5, key=-1),
            cached(0),
            allocates(2, 5),
            schedules(running=1),
        ),
    ),
]


# I3


def ending(kind: RequestKind) -> list[Row]:
    finish = {"table": "request", "kind": RequestKind.FINISH}
    rows = one_request(kept=[2])
    ends = [row.table == finish["table"] and row.cells["kind"] == finish["kind"] for row in rows]
    return [row.changed(kind=kind) if end else row for row, end in zip(rows, ends, strict=True)]


def busy(state: str) -> list[Row]:
    *rows, boundary = one_request(kept=[2], holder=Holder.COPY_ON_WRITE)
    return [*rows, boundary.changed(**{state: 1})]


def never_ending() -> list[Row]:
    small = SmallTrace()
    small.arrives(7)
    small.begins()
    small.allocates(7, [1, 2])
    small.schedules()
    return small.rows


I3_CASES = [
    *(
        Case(
            f"a block is kept after {kind.name.lower()}",
            ending(kind),
            illegal(
                "I3",
                f"request req-0 ended in step 1 ({kind.name.lower()}) and still holds 1 blocks of group 0 in pool 0 "
                "at the next boundary (step 1, completed)",
            ),
        )
        for kind in (RequestKind.FINISH, RequestKind.ABORT)
    ),
    Case("all blocks are released before the boundary", one_request()),
    *(
        Case(f"{holder.name.lower()} is a legal holder", one_request(kept=[2], holder=holder))
        for holder in (Holder.DEFERRED_FREE, Holder.PINNED)
    ),
    Case(
        "an idle engine has a copy on write",
        one_request(kept=[2], holder=Holder.COPY_ON_WRITE),
        illegal("I3", "copy on write holds 1 blocks of pool 0 after step 1 in an idle engine"),
    ),
    Case(
        "an idle engine has a block that nobody is known to hold",
        one_request(kept=[2], holder=Holder.UNKNOWN),
        illegal("I3", "unknown holds 1 blocks of pool 0 after step 1 in an idle engine"),
    ),
    *(Case(f"not idle: {state}", busy(state)) for state in ("running", "waiting", "deferred_blocks")),
    Case(
        "a request without an end in an idle engine",
        never_ending(),
        illegal("I3", "request req-7 holds 2 blocks of pool 0 after step 1 in an idle engine"),
    ),
]

CASES = I1_CASES + I2_CASES + I3_CASES


@pytest.fixture(scope="module")
def violations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Violation]]:
    """What the rules say of each case."""
    path = tmp_path_factory.mktemp("cases")
    for number, case in enumerate(CASES):
        write_process(path, case.rows, process_manifest(started=number))
    run = find_run(path)
    found: dict[str, list[Violation]] = defaultdict(list)
    with pytest.MonkeyPatch.context() as patch, replayed(run, update_cache(run)) as replay:
        formulas = {"vstate": lambda group, settings, prompt, output: output}
        patch.setattr("vstate.reconcile.estimates.formulas", lambda: formulas)
        judge_estimates(replay, run)
        for rule in read_rules():
            query = f"SELECT engine, severity, sentence FROM ({rule.query}) ORDER BY engine, seq"
            for engine, severity, sentence in replay.connection.execute(query).fetchall():
                what, label = sentence.rsplit(" (", 1)
                assert label == f"engine engine-{engine})."
                found[CASES[engine].name].append((rule.id, severity, what))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_rule_finds_what_breaks_it_and_no_near_miss(case: Case, violations: dict[str, list[Violation]]) -> None:
    told = violations[case.name]
    if any(rule == "I2" for rule, _, _ in case.expected):
        # A call that breaks the books usually shows in the counts as well.
        told = [violation for violation in told if violation in case.expected or "by replay" not in violation[2]]
    assert tuple(told) == case.expected


# Findings


def test_a_finding_counts_all_and_tells_the_first(summarise: Callable[..., Summary]) -> None:
    small = SmallTrace()
    for lost in range(8):
        small.begins()
        small.free_blocks -= lost % 2
        small.schedules()
        small.completes()
    (finding,) = summarise(small.rows, process_manifest()).findings
    assert (finding.rule, finding.title, finding.severity) == ("I2", "Pool conservation", "illegal")
    assert finding.count == 4, "a difference that goes on is told once"
    assert finding.sentence.count("by replay") == SENTENCES
    assert finding.sentence.startswith("step 2 (scheduled): pool 0 has 15 free blocks by replay, 14 by the engine's")
    assert finding.sentence.endswith("1 more like this.")


# Headers


def test_every_rule_explains_itself() -> None:
    rules = read_rules()
    assert [rule.id for rule in rules] == ["I1", "I2", "I3"]
    assert [rule.severity for rule in rules] == ["undercount", "illegal", "illegal"]
    for rule in rules:
        assert rule.action.endswith(".")
        assert rule.proves.endswith(".")
        assert all("#" in report for report in rule.reports)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1", "must begin with comments for id, title"),
        ("-- id: I9\nSELECT 1", "must begin with comments for id, title"),
    ],
)
def test_a_rule_without_a_header_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "i99.sql"
    path.write_text(text)
    with pytest.raises(VstateError, match=message):
        parse_rule(path)


def test_a_rule_of_unknown_severity_is_refused(tmp_path: Path) -> None:
    names = ("id", "title", "severity", "evidence", "proves", "reports", "action")
    path = tmp_path / "i99.sql"
    path.write_text("".join(f"-- {name}: some\n" for name in names) + "SELECT 1\n")
    with pytest.raises(VstateError, match="severity must be one of info, undercount, illegal"):
        parse_rule(path)
