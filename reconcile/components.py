"""Useful and charged bytes of every component, summed over the moments of release."""

from __future__ import annotations

from dataclasses import dataclass

from vstate.reconcile.replay import Replay, read_sql
from vstate.reconcile.streams import RunFolder
from vstate.schemas.component import StateComponent
from vstate.schemas.summary import ComponentSummary
from vstate.schemas.vocabulary import StateClass, Unit


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
    """Return one row per component, in the order of groups and of the manifest.

    Engines of one run add up. An engine that was started again in the place of another one adds
    its traffic, but its pool is planned once.
    """
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
                rows[key] = ComponentSummary(
                    component=component.id,
                    state_class=component.state_class,
                    owner=component.owner,
                    group=group.group,
                    evidence=component.evidence,
                    useful_bytes=useful_bytes(component, held) + (before.useful_bytes if before else 0),
                    charged_bytes=held.held_blocks * component.charged_bytes_per_block
                    + (before.charged_bytes if before else 0),
                    planned_bytes=sum(pools.values()),
                    observed_bytes=None,
                )
    return [rows[key] for key in sorted(rows, key=lambda key: key[0])]


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
