"""Estimates beside what requests really held, in blocks per group.

Errors of both signs are summed apart and never netted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from vstate.reconcile.replay import Replay, load_rows, read_sql
from vstate.reconcile.streams import RunFolder
from vstate.schemas.manifests import EngineSettings, GroupManifest
from vstate.schemas.summary import EstimateSummary

Formula = Callable[[GroupManifest, EngineSettings, int, int], int]
"""Blocks of a group for a request of (tokens to prefill, output tokens still to come at most)."""


def formulas() -> dict[str, Formula]:
    """Return the estimates that follow from a request's lengths, by source."""
    from vstate.inventory.estimator import bound_blocks, naive_blocks

    return {
        "naive": lambda group, _, prompt, output: naive_blocks(group, prompt, output),
        "vstate": bound_blocks,
    }


def judge_estimates(replay: Replay, run: RunFolder) -> list[EstimateSummary]:
    """Make the table ``judged_estimates`` and return its sums.

    The formulas are asked once per group and lengths. A resumed request has all that is known of it to prefill, and
    less still to come.
    """
    connection = replay.connection
    _load_bounds(connection, run)
    connection.execute(f"CREATE TABLE judged_estimates AS {read_sql('judged_estimates')}")
    totals = connection.execute(read_sql("estimate_totals"))
    names = [column[0] for column in totals.description]
    return [EstimateSummary(**dict(zip(names, row, strict=True))) for row in totals.fetchall()]


def _load_bounds(connection: Any, run: RunFolder) -> None:
    sources = formulas()
    rows = []
    for engine in run.engines:
        lengths = connection.execute(
            "SELECT DISTINCT prompt_tokens, max_tokens, prefill_tokens FROM attempts WHERE engine = ?",
            [engine.engine],
        ).fetchall()
        rows += [
            {
                "engine": engine.engine,
                "source": source,
                "pool": group.pool,
                "group": group.group,
                "prompt_tokens": prompt_tokens,
                "max_tokens": max_tokens,
                "prefill_tokens": prefill_tokens,
                "estimated_blocks": formula(
                    group, engine.manifest.settings, prefill_tokens, prompt_tokens + max_tokens - prefill_tokens
                ),
            }
            for prompt_tokens, max_tokens, prefill_tokens in lengths
            for group in engine.manifest.groups
            for source, formula in sources.items()
        ]
    integer = pa.int32()
    schema = pa.schema(
        {
            "engine": integer,
            "source": pa.string(),
            "pool": integer,
            "group": integer,
            "prompt_tokens": integer,
            "max_tokens": integer,
            "prefill_tokens": integer,
            "estimated_blocks": pa.int64(),
        }
    )
    load_rows(connection, "bounds", schema, rows)
