"""Hand-made traces: one pool, few blocks, every number visible in the test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.traces import Row, TraceLog
from vstate.schemas.summary import Summary
from vstate.schemas.tables.block import BlockKind
from vstate.schemas.tables.estimate import EstimateScope, EstimateSource, EstimateVerdict
from vstate.schemas.tables.request import RequestKind
from vstate.schemas.tables.snapshot import SnapshotKind
from vstate.schemas.tables.step import StepKind
from vstate.schemas.vocabulary import Holder

NUM_BLOCKS = 16
ALL_FREE = NUM_BLOCKS - 1


class SmallTrace(TraceLog):
    """A log that begins with the snapshot of an empty pool of 16 blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.free_blocks = ALL_FREE
        self.cached = 0
        self.add("snapshot", kind=SnapshotKind.BEGIN)
        self.add("snapshot", kind=SnapshotKind.POOL, pool=0, free_blocks=ALL_FREE)
        self.add("snapshot", kind=SnapshotKind.END)

    def arrives(self, key: int, prompt: int = 10, output: int = 4) -> None:
        self.name(key, f"req-{key}")
        self.request(RequestKind.ARRIVE, key, prompt_tokens=prompt, max_tokens=output)

    def calls(
        self,
        kind: BlockKind,
        blocks: Sequence[int],
        key: int = 0,
        group: int = 0,
        free: int = 0,
        **cells: int,
    ) -> None:
        """Record a call and note by how many the engine's free count changes."""
        self.block(kind, 0, group, key, blocks, **cells)
        self.free_blocks += free

    def allocates(self, key: int, blocks: Sequence[int], group: int = 0) -> None:
        self.calls(BlockKind.ALLOC, blocks, key, group, free=-len(blocks))

    def frees(self, key: int, blocks: Sequence[int], group: int = 0) -> None:
        self.calls(BlockKind.FREE, blocks, key, group, free=len(blocks))

    def admits(self, key: int, attempt: int = 1, prompt: int = 10, output: int = 4, hit: int = 0) -> None:
        kind = RequestKind.ADMIT if attempt == 1 else RequestKind.RESUME
        cells = {"attempt": attempt, "prompt_tokens": prompt, "max_tokens": output}
        self.request(kind, key, hit_tokens=hit, **cells)

    def prefills(self, key: int, scheduled: int, computed: int = 0, total: int = 10, attempt: int = 1) -> None:
        self.request(
            RequestKind.PREFILL_CHUNK,
            key,
            attempt=attempt,
            computed_tokens=computed,
            scheduled_tokens=scheduled,
            total_tokens=total,
        )

    def estimates(
        self,
        key: int,
        new: int,
        held: int = 0,
        group: int = 0,
        attempt: int = 1,
        verdict: EstimateVerdict = EstimateVerdict.ADMITTED,
    ) -> None:
        self.add(
            "estimate",
            request_key=key,
            attempt=attempt,
            source=EstimateSource.STOCK,
            scope=EstimateScope.PREFILL,
            verdict=verdict,
            pool=0,
            group=group,
            new_blocks=new,
            held_blocks=held,
        )

    def ends(
        self,
        key: int,
        kind: RequestKind = RequestKind.FINISH,
        computed: int = 13,
        attempt: int = 1,
    ) -> None:
        self.request(kind, key, attempt=attempt, computed_tokens=computed)

    def schedules(self, **cells: int) -> None:
        self.boundary(StepKind.SCHEDULED, [self.free_blocks], [self.cached], **cells)

    def completes(self, **cells: int) -> None:
        self.boundary(StepKind.COMPLETED, [self.free_blocks], [self.cached], **cells)

    def begins(self) -> None:
        self.step += 1


def one_request(blocks: Sequence[int] = (1, 2, 3), kept: Sequence[int] = (), holder: Holder | None = None) -> list[Row]:
    """A request that runs for one step and frees all its blocks but ``kept``.

    With a ``holder`` the blocks that are kept pass to it.
    """
    trace = SmallTrace()
    trace.arrives(0)
    trace.begins()
    trace.allocates(0, blocks)
    trace.admits(0)
    trace.prefills(0, scheduled=10)
    trace.schedules(running=1)
    trace.ends(0)
    if holder is not None:
        trace.calls(BlockKind.PIN, kept, int(holder), -1)
        trace.calls(BlockKind.UNPIN, kept, 0)
    trace.frees(0, [block for block in blocks if block not in kept])
    deferred = len(kept) if holder is Holder.DEFERRED_FREE else 0
    trace.completes(deferred_blocks=deferred)
    return trace.rows


def summary_of(**fields: Any) -> Summary:
    """What reconcile says of a run, nothing where a field is not given."""
    nothing = dict.fromkeys(("steps", "requests", "events", "dropped"), 0) | {
        name: [] for name in ("gaps", "estimates", "components", "findings")
    }
    return Summary(**({"model": "m", "engine": "full", "verdict": "clean", "outcome": {}} | nothing | fields))
