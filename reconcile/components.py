"""Useful and charged bytes of every component, summed over the moments of release."""

from __future__ import annotations

from dataclasses import dataclass

from vstate.reconcile.replay import Replay, read_sql
from vstate.reconcile.streams import RunFolder
from vstate.schemas.component import StateComponent
from vstate.schemas.summary import ComponentSummary
from vstate.schemas.vocabulary import Evidence, StateClass, Unit


@dataclass(frozen=True)
class ReleaseTotals:
    """What the requests of one engine held in one group when they released it.

    Attributes:
        committed_tokens: Computed tokens whose state was in the blocks held.
        states: Slots that held a whole state.
        held_blocks: Blocks; a shared one counts for each of its holders.
    """

    committed_tokens: int = 0
    states: int = 0
    held_blocks: int = 0


def summarise_components(replay: Replay, run: RunFolder) -> list[ComponentSummary]:
    """Return one row per component: those of the pools in the order of groups and of the manifest, then the others.

    Engines of one run add up. An engine that was started again in the place of another one adds
    its traffic, but its pool is planned once. Real bytes are those that workers and front ends measured.
    """
    real = {
        component: (planned_bytes, observed_bytes)
        for component, planned_bytes, observed_bytes in replay.connection.execute(
            read_sql("component_bytes")
        ).fetchall()
    }
    totals = {
        (engine, pool, group): ReleaseTotals(*sums)
        for engine, pool, group, *sums in replay.connection.execute(read_sql("release_totals")).fetchall()
    }
    rows: dict[tuple[int, str], ComponentSummary] = {}
    planned: dict[tuple[int, str], dict[int, int]] = {}
    for engine in run.engines:
        num_blocks = {pool.pool: pool.num_blocks for pool in engine.manifest.pools}
        for group in engine.manifest.groups:
            held = totals.get((engine.engine, group.pool, group.group), ReleaseTotals())
            for component in group.components:
                key = (group.group, component.id)
                pools = planned.setdefault(key, {})
                pools[engine.manifest.data_parallel_rank] = component.charged_bytes_per_block * num_blocks[group.pool]
                before = rows.get(key)
                _, observed_bytes = real.get(component.id, (0, None))
                rows[key] = ComponentSummary(
                    component=component.id,
                    state_class=component.state_class,
                    owner=component.owner,
                    group=group.group,
                    evidence=component.evidence if observed_bytes is None else Evidence.MEASURED,
                    useful_bytes=useful_bytes(component, held) + (before.useful_bytes if before else 0),
                    charged_bytes=held.held_blocks * component.charged_bytes_per_block
                    + (before.charged_bytes if before else 0),
                    planned_bytes=sum(pools.values()),
                    observed_bytes=observed_bytes,
                )
    return [rows[key] for key in sorted(rows, key=lambda key: key[0])] + _outside_pools(run, real)


def _outside_pools(run: RunFolder, real: dict[str, tuple[int, int | None]]) -> list[ComponentSummary]:
    """Return the components that no block holds; requests do not take or release them."""
    found = {c.id: c for holder in run.holders for c in holder.manifest.components if c.group < 0}
    return [
        ComponentSummary(
            component=component.id,
            state_class=component.state_class,
            owner=component.owner,
            group=component.group,
            evidence=component.evidence if real[component.id][1] is None else Evidence.MEASURED,
            useful_bytes=0,
            charged_bytes=0,
            planned_bytes=real[component.id][0],
            observed_bytes=real[component.id][1],
        )
        for component in found.values()
        if component.id in real
    ]


def useful_bytes(component: StateComponent, held: ReleaseTotals) -> int:
    """Return the unpadded bytes that stood for something, in bytes.

    KV counts by token, a recurrent or convolutional state whole or not at all.
    """
    if component.state_class is StateClass.PADDING:
        return 0
    if component.unit is Unit.TOKEN:
        return held.committed_tokens * component.useful_bytes_per_unit
    if component.unit is Unit.REQUEST:
        return held.states * component.useful_bytes_per_unit
    return held.held_blocks * component.useful_bytes_per_block
