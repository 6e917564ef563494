"""Useful and charged bytes at the moment of release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from support.small import SmallTrace
from support.traces import group_manifest, process_manifest, write_process
from vstate.reconcile.cache import update_cache
from vstate.reconcile.components import summarise_components
from vstate.reconcile.job import reconcile_run
from vstate.reconcile.replay import replayed
from vstate.reconcile.streams import find_run
from vstate.schemas.component import StateComponent
from vstate.schemas.manifests import ProcessManifest
from vstate.schemas.summary import Summary
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.vocabulary import (
    Eviction,
    Evidence,
    Lifetime,
    Mutability,
    Owner,
    Shareable,
    StateClass,
    Unit,
)


def component(state_class: StateClass, unit: Unit, useful: int, charged: int) -> StateComponent:
    return StateComponent(
        id=f"g0/target/{state_class}",
        state_class=state_class,
        owner=Owner.TARGET,
        pool=0,
        group=0,
        layers=("layers.0",),
        dtype="bfloat16",
        unit=unit,
        useful_bytes_per_unit=useful,
        useful_bytes_per_block=useful * (4 if unit is Unit.TOKEN else 1),
        charged_bytes_per_block=charged,
        lifetime=Lifetime.REQUEST,
        mutability=Mutability.APPEND_ONLY,
        eviction=Eviction.LRU,
        shareable=Shareable.ALWAYS,
        boundary_tokens=4,
        evidence=Evidence.BOOKED,
    )


KV = component(StateClass.FULL_KV, Unit.TOKEN, useful=10, charged=50)
STATE = component(StateClass.RECURRENT, Unit.REQUEST, useful=70, charged=90)
PADDING = component(StateClass.PADDING, Unit.BLOCK, useful=0, charged=20)
TABLES = component(StateClass.WORKSPACE, Unit.BLOCK, useful=3, charged=5)


def manifest(components: Sequence[StateComponent], started: int = 1, **group: int) -> ProcessManifest:
    groups = [group_manifest(0, components=tuple(components), **group)]
    return process_manifest(groups=groups, started=started)


def released(held: Sequence[int], computed: int, kind: RequestKind = RequestKind.FINISH) -> SmallTrace:
    """A request of blocks of 4 tokens that releases what it holds."""
    trace = SmallTrace()
    trace.arrives(0)
    trace.begins()
    if held:
        trace.allocates(0, held)
    trace.admits(0)
    trace.schedules(running=1)
    trace.ends(0, kind, computed=computed)
    if held:
        trace.frees(0, held)
    trace.completes()
    return trace


RELEASES = [
    # (blocks held, computed tokens, tokens in the blocks held)
    ([1, 2, 3], 10, 10),
    ([1, 2, 3], 12, 12),
    ([1, 2], 18, 18 - 3 * 4),
    ([1, 2, 3, 4], 9, 9),
    ([1], 0, 0),
    ([], 9, 0),
]


def test_kv_counts_the_tokens_in_the_blocks_held(tmp_path: Path) -> None:
    for number, (held, computed, _) in enumerate(RELEASES):
        write_process(tmp_path, released(held, computed).rows, manifest([KV], number))
    run = find_run(tmp_path)
    with replayed(run, update_cache(run)) as replay:
        query = "SELECT held_blocks, computed_tokens, committed_tokens FROM releases ORDER BY engine"
        rows = replay.connection.execute(query).fetchall()
        (row,) = summarise_components(replay, run)
    assert rows == [(len(held), computed, tokens) for held, computed, tokens in RELEASES]
    assert row.useful_bytes == sum(tokens for *_, tokens in RELEASES) * 10
    assert row.charged_bytes == sum(len(held) for held, *_ in RELEASES) * 50
    assert row.planned_bytes == 16 * 50
    assert (row.evidence, row.observed_bytes) == (Evidence.BOOKED, None)


def test_a_state_counts_whole_or_not_at_all(tmp_path: Path) -> None:
    components = [STATE, PADDING, TABLES]
    for number, computed in enumerate((10, 0)):
        rows = released([1, 2, 3], computed, RequestKind.ABORT).rows
        write_process(tmp_path, rows, manifest(components, number, speculative_blocks=1))
    state, padding, tables = reconcile_run(tmp_path).components
    assert (state.useful_bytes, state.charged_bytes) == (2 * 70, 6 * 90), "the second computed nothing"
    assert (padding.useful_bytes, padding.charged_bytes) == (0, 6 * 20)
    assert tables.useful_bytes == 6 * 3


def test_a_preemption_is_a_release(summarise: Callable[..., Summary]) -> None:
    trace = released([1, 2], 8, RequestKind.PREEMPT)
    trace.begins()
    trace.allocates(0, [1, 2, 3])
    trace.admits(0, attempt=2)
    trace.schedules(running=1)
    trace.ends(0, computed=12, attempt=2)
    trace.frees(0, [1, 2, 3])
    trace.completes()
    (row,) = summarise(trace.rows, manifest([KV])).components
    assert (row.useful_bytes, row.charged_bytes) == (200, 250)


def test_an_engine_started_again_plans_its_pool_once(tmp_path: Path) -> None:
    for started in (1, 2):
        write_process(tmp_path, released([1], 4).rows, manifest([KV], started))
    other_rank = manifest([KV], 3).model_copy(update={"data_parallel_rank": 1})
    write_process(tmp_path, released([1], 4).rows, other_rank)
    (row,) = reconcile_run(tmp_path).components
    assert (row.useful_bytes, row.charged_bytes) == (3 * 40, 3 * 50)
    assert row.planned_bytes == 2 * 16 * 50
