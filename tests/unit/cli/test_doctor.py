"""`vstate doctor` without a vLLM: its replay, its verdicts, its usage, and children that do not answer."""

import pytest
from pydantic import BaseModel

from support.scenarios import Scenario, run_scenario
from support.traces import group_manifest, process_manifest
from vstate.cli.doctor import parse_size
from vstate.doctor.books import Books, first_difference
from vstate.doctor.child import ChildFailure, ask_child
from vstate.doctor.fit import Fit
from vstate.doctor.plan import PlanAnswer, make_plan, planned
from vstate.doctor.probe import OperationReport, OperationState, ProbeReport
from vstate.doctor.replay import REPLAYED_TABLES, Replay
from vstate.schemas.component import StateComponent
from vstate.schemas.errors import VstateError
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.encoder import EncoderKind
from vstate.schemas.tables.names import NameKind


def events(engine):
    """What the replay reads; the tiny engine knows its requests by one name only."""
    rows = [row for row in engine.log.rows if row.table in REPLAYED_TABLES]
    return [(row.table, row.cells | ({"kind": NameKind.REQUEST} if row.table == "names" else {})) for row in rows]


@pytest.mark.parametrize("layout", range(4))
def test_the_plain_replay_equals_the_books_at_every_step(layout):
    engine = run_scenario(Scenario(seed=layout, layout=layout))
    replay = Replay(events(engine), engine.pool_blocks)
    steps = [row for row in engine.log.rows if row.table == "step"]
    held = 0
    for step in steps:
        books = replay.until(step.seq)
        assert list(books.free_blocks) == step.cells["free_blocks"]
        found = [
            {(h, place[1]) for place, hashes in books.hashes.items() if place[0] == pool for h in hashes}
            for pool in range(len(engine.pool_blocks))
        ]
        assert [len(hashes) for hashes in found] == step.cells["cached_hashes"]
        held = max(held, len(books.held))
    assert len(steps) > 50
    assert held > 10
    assert books.held == {}


@pytest.mark.parametrize(
    "kind", [kind for kind in BlockKind if kind not in (BlockKind.MOVE, BlockKind.RESET)], ids=lambda kind: kind.name
)
def test_one_event_that_is_missing_is_a_difference(kind):
    engine = run_scenario(Scenario(seed=3, layout=2))
    whole = events(engine)
    position = next(n for n, (table, row) in enumerate(whole) if table == "block" and row["kind"] == kind)
    seq, pools = whole[position][1]["seq"], engine.pool_blocks
    true, broken = Replay(whole, pools), Replay(whole[:position] + whole[position + 1 :], pools)
    assert first_difference(broken.until(seq - 1), true.until(seq - 1)) == ""
    assert first_difference(broken.until(seq), true.until(seq)) != ""


def encoder(seq, kind, key, media, embeds):
    row = {"seq": seq, "kind": kind, "request_key": key, "media": media, "item": 0, "entry_embeds": embeds}
    return ("encoder", row)


def test_the_encoder_cache_is_replayed_by_entry_and_by_user():
    names = [("names", {"seq": n, "kind": NameKind.REQUEST, "key": n, "value": f"r{n}"}) for n in (1, 2)]
    calls = (EncoderKind.ALLOCATE, 1), (EncoderKind.HIT, 2), (EncoderKind.RELEASE, 1), (EncoderKind.RELEASE, 2)
    rows = [encoder(seq, kind, key, 77, 5) for seq, (kind, key) in enumerate(calls, 3)]
    replay = Replay([*names, *rows, encoder(7, EncoderKind.EVICT, -1, 77, 5)], (4,))
    users = [dict(replay.until(seq).encoder) for seq in (3, 4, 5, 6, 7)]
    assert users == [{(5, ("r1",)): 1}, {(5, ("r1", "r2")): 1}, {(5, ("r2",)): 1}, {(5, ()): 1}, {}]


def test_a_difference_names_block_and_both_sides():
    ours, theirs = Books(free_blocks=(3,)), Books(free_blocks=(3,))
    assert first_difference(ours, theirs) == ""
    theirs.held["r1", 2, 7] = 1
    held = "block 7 as held by request r1 in group 2: 0 references by replay, 1 in the engine's books"
    assert first_difference(ours, theirs) == held
    theirs.references[0, 7] = 2
    assert first_difference(ours, theirs) == "block 7 of pool 0: 0 references by replay, 2 in the engine's books"


@pytest.mark.parametrize("state", OperationState)
def test_only_what_agrees_or_cannot_be_there_is_no_fault(state):
    told = "after step 1, block 1" if state is OperationState.DIFFERS else ""
    report = ProbeReport(fit=Fit(), operations=(OperationReport(name="evict", state=state, told=told),))
    good = state in (OperationState.AGREES, OperationState.ABSENT, OperationState.NOT_REACHED)
    assert (report.faults == []) is good
    assert good or report.verdict.startswith("evict: ")


def test_lost_events_are_a_fault_even_where_the_books_agree():
    report = ProbeReport(lost_events=3, warnings=("recording schedule failed",))
    assert report.verdict == "events that the tracer could not record: 3; recording schedule failed"


def component(group, state_class):
    kinds = {"unit": "request", "lifetime": "request", "mutability": "in_place", "eviction": "lru"}
    sizes = {"useful_bytes_per_unit": 1, "useful_bytes_per_block": 1, "charged_bytes_per_block": 1}
    return StateComponent(
        id=f"g{group}",
        state_class=state_class,
        owner="target",
        pool=0,
        group=group,
        layers=("l",),
        dtype="bf16",
        shareable="never",
        boundary_tokens=4,
        **kinds,
        **sizes,
    )


def answer(num_blocks, **more):
    """A hybrid of two recurrent groups and one of attention, and 16 requests at once."""
    groups = [
        group_manifest(n, state_mode="align", components=(component(n, "recurrent"),), checkpoint_blocks=1)
        for n in (0, 1)
    ]
    groups.append(group_manifest(2, components=(component(2, "full_kv"),), partial_hits=True))
    return PlanAnswer(manifest=process_manifest((num_blocks,), groups), model="m", memory_source="given", **more)


def test_a_pool_that_holds_every_sequence_fits_to_the_block():
    plan = planned(answer(16 * 3 + 1))
    assert plan.fits
    assert plan.verdict == "max_num_seqs 16 fits: at most 16 sequences"
    assert plan.minimum_request.blocks == 3
    assert [group.full_length_blocks for group in plan.groups] == [3, 3, 1024 + 1]
    assert plan.full_length_request.bytes == plan.full_length_request.blocks * plan.pools[0].block_bytes


def test_a_pool_that_is_one_block_short_does_not_fit():
    plan = planned(answer(16 * 3))
    assert not plan.fits
    assert plan.verdict == (
        "max_num_seqs 16 needs 32 blocks in groups 0 to 1 (recurrent) and 16 blocks in group 2 (full_kv), "
        "the pool has 47: at most 15 sequences"
    )


def test_what_a_worker_refuses_after_the_weights_is_part_of_the_verdict():
    refusal = "ValueError: max_num_seqs (16) exceeds available Mamba cache blocks (10)"
    plan = planned(answer(10, refusal=refusal))
    assert not plan.fits
    assert plan.verdict.endswith(f"; vLLM refuses to start after it has loaded the weights: {refusal}")


def test_a_start_that_the_engine_core_refuses_has_no_pools():
    plan = planned(PlanAnswer(refusal="ValueError: too small"))
    assert (plan.fits, plan.pools) == (False, ())
    assert plan.verdict == "vLLM refuses to start: ValueError: too small"


@pytest.mark.parametrize(
    ("text", "count"), [("7", 7), ("16GiB", 2**34), ("1.5 GiB", 3 * 2**29), ("2MB", 2 * 10**6), ("3k", 3000)]
)
def test_sizes(text, count):
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "lots", "-1", "GiB", "1PiB"])
def test_what_is_no_size(text):
    with pytest.raises(VstateError, match="is no size; give bytes or a unit"):
        parse_size(text)


@pytest.mark.parametrize("arguments", [[], ["vllm", "serve"]])
def test_a_plan_without_arguments(arguments):
    with pytest.raises(VstateError, match="after --, as in: vstate doctor --config -- MODEL"):
        make_plan(arguments, None)


class Question(BaseModel):
    text: str = "?"


CHILD = """
from support.child_question import Question
from vstate.doctor.child import answer_parent
{before}
answer_parent(Question, lambda asked: print("noise") or Question(text=asked.text + "!"))
"""


@pytest.fixture
def ask(tmp_path):
    """Ask a child that does something before it answers."""

    def asked(before="", timeout_seconds=60.0):
        (tmp_path / "support").mkdir()
        (tmp_path / "support" / "child_question.py").write_text(
            "from pydantic import BaseModel\nclass Question(BaseModel):\n    text: str = '?'\n"
        )
        (tmp_path / "child_of_test.py").write_text(CHILD.format(before=before))
        environment = {"PYTHONPATH": str(tmp_path)}
        return ask_child("child_of_test", Question(), Question, environment, timeout_seconds)

    return asked


def test_a_child_answers_through_what_it_prints(ask):
    assert ask().text == "?!"


def test_a_child_that_raises_is_told_by_its_last_line(ask):
    with pytest.raises(ChildFailure, match="it ended with code 1: ImportError: a broken fork"):
        ask("raise ImportError('a broken fork')")


def test_a_child_that_is_killed_is_told(ask):
    with pytest.raises(ChildFailure, match="it ended with code -11: it said nothing"):
        ask("import os; os.kill(os.getpid(), 11)")


def test_a_child_that_hangs_is_ended(ask):
    with pytest.raises(ChildFailure, match="it did not answer within 1 s"):
        ask("import time; time.sleep(3600)", timeout_seconds=1.0)
