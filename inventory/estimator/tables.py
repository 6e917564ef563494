"""One request's block table in one group, step by step, as its manager in vLLM 0.32 keeps it.

The source of each rule is ``v1/core/single_type_kv_cache_manager.py``; the order within a step is that of
``KVCacheManager.allocate_slots``: let go, take the hit, take new blocks, cache.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from vstate.inventory.estimator.rules import EngineRule, GroupRule, Kind


class Moment(NamedTuple):
    """One call of ``allocate_slots``.

    Attributes:
        computed: Tokens computed or hit before it, those in flight included.
        processed: Of those, the ones that are done and kept.
        end: Tokens with this step's.
        slots: Tokens that need a slot: the draft model's lookahead included.
        known: Prompt and output tokens known.
        prompt: Prompt tokens.
        hit: Tokens of the prefix hit, in the first step of an attempt; else 0.
        encoder: Tokens of the encoder's output.
    """

    computed: int
    processed: int
    end: int
    slots: int
    known: int
    prompt: int
    hit: int
    encoder: int


class Table(Protocol):
    """What a request holds in one group."""

    def step(self, moment: Moment) -> tuple[int, int]:
        """Go through one step; return the most blocks held meanwhile and those held after it."""


def new_table(rule: GroupRule, engine: EngineRule) -> Table:
    """Return the empty table of an admission."""
    if rule.kind is Kind.STATES:
        return StateTable(rule, engine)
    if rule.kind is Kind.FIXED:
        return FixedTable(rule)
    return PagedTable(rule)


class FixedTable:
    """The same blocks for every request (``CircularBufferManager``)."""

    def __init__(self, rule: GroupRule) -> None:
        """Take the group's rule."""
        self._blocks = rule.fixed

    def step(self, moment: Moment) -> tuple[int, int]:
        """See `Table.step`."""
        del moment
        return self._blocks, self._blocks


class PagedTable:
    """Positions that grow with what is scheduled, of which some are let go."""

    def __init__(self, rule: GroupRule) -> None:
        """Begin without blocks."""
        self._rule = rule
        self._length = 0
        self._gone_from = 0
        self._gone_to = 0

    @property
    def _held(self) -> int:
        return self._length - (self._gone_to - self._gone_from)

    def step(self, moment: Moment) -> tuple[int, int]:
        """See `Table.step`."""
        rule = self._rule
        if rule.decode_window and not self._length:
            self._gone_from = self._gone_to = -(-moment.prompt // rule.block)
        self._let_go(moment)
        peak = 0
        if moment.hit:
            self._take_hit(moment.hit)
            if rule.copies and moment.hit % rule.block:
                peak = self._held + 1
        tokens = moment.encoder if rule.kind is Kind.ENCODER else moment.slots
        self._length = max(self._length, -(-tokens // rule.block) + rule.extra)
        return max(peak, self._held), self._held

    def _let_go(self, moment: Moment) -> None:
        rule = self._rule
        if rule.decode_window:
            start = moment.processed - rule.decode_window
            self._gone_to = max(self._gone_to, min(start // rule.block, self._length))
        else:
            self._gone_to = max(self._gone_to, min(self._unneeded(moment.processed), self._length))

    def _unneeded(self, tokens: int) -> int:
        """Blocks before those that the next token needs (``get_num_skipped_tokens``)."""
        rule = self._rule
        if rule.window >= 0:
            return max(0, tokens - rule.window) // rule.block
        if rule.chunk:
            return tokens // rule.chunk * rule.chunk // rule.block
        return 0

    def _take_hit(self, hit: int) -> None:
        if not self._rule.cached:
            self._length = self._gone_to = self._unneeded(hit)
            return
        self._length = -(-hit // self._rule.block)
        if self._rule.decode_window:
            return
        self._gone_to = self._unneeded(hit)
        if self._rule.hit_blocks >= 0:
            self._gone_to = max(self._gone_to, self._length - self._rule.hit_blocks)


class StateTable:
    """Whole states at positions of a table, most of which are empty (``MambaManager``, mode ``align``)."""

    def __init__(self, rule: GroupRule, engine: EngineRule) -> None:
        """Begin without states."""
        self._rule = rule
        self._engine = engine
        self._length = 0
        self._held: set[int] = set()
        self._started = False
        self._last_state: int | None = None
        self._retired = 0
        self._copied = False

    def step(self, moment: Moment) -> tuple[int, int]:
        """See `Table.step`."""
        self._let_go(moment.processed)
        checkpoint = self._exports(moment)
        if moment.hit:
            self._length = (moment.hit - 1) // self._rule.block + 1
            self._held = {self._length - 1}
            self._copied = moment.hit % self._rule.block != 0
        peak = self._allocate(moment.end, int(checkpoint))
        if not checkpoint:
            self._mark_tail(moment)
        return peak, len(self._held)

    def _let_go(self, processed: int) -> None:
        """``MambaManager.remove_skipped_blocks``."""
        end = min((processed - 1) // self._rule.block, self._length) if processed > 1 else 0
        if end > self._retired:
            self._held -= set(range(self._retired, end))
            self._retired = end
        if self._last_state is not None and self._last_state < -(-processed // self._rule.block) - 1:
            self._held.discard(self._last_state)

    def _boundary(self, tokens: int, unit: int) -> int:
        """``get_mamba_prefill_checkpoint_position``."""
        drops = self._engine.drops_draft_block
        boundary = (tokens if drops else tokens - 1) // unit * unit
        return max(boundary - unit if drops else boundary, 0)

    def _exports(self, moment: Moment) -> bool:
        """``MambaManager._needs_internal_checkpoint``, ``is_mamba_prefill_checkpoint_valid``."""
        rule, engine = self._rule, self._engine
        start, end = moment.computed, moment.end
        unit = rule.hash_block if engine.partial_hits else engine.scheduler_block
        at = self._boundary(end, unit)
        column = -(-end // rule.block) - 2
        return (
            rule.checkpoint
            and (not engine.sparse or end >= max(moment.prompt, moment.known - 1))
            and start % rule.hash_block == 0
            and column > (start - 1) // rule.block
            and at > start
            and (at - start) % rule.checkpoint_alignment == 0
            and (
                column >= self._length
                or column not in self._held
                or (self._started and column >= self._length - rule.extra)
            )
        )

    def _allocate(self, end: int, checkpoint: int) -> int:
        """``MambaManager.allocate_new_blocks``; return the most blocks held meanwhile."""
        rule, before = self._rule, len(self._held)
        required = -(-end // rule.block) + rule.extra
        if required <= self._length and not self._copied and not checkpoint:
            self._started = True
            return before
        if self._started:
            self._last_state = self._length - 1 - rule.extra
        elif self._length:
            self._last_state = self._length - 1
        running = required - rule.extra - 1
        previous = self._length
        if previous < running:
            self._length = max(previous, running - checkpoint)
        if self._started:
            for index in range(previous - rule.extra, min(previous, running - checkpoint)):
                self._held.remove(index)
                self._held.add(self._length)
                self._length += 1
        fresh = max(required - self._length, 0)
        self._held.update(range(self._length, self._length + fresh))
        self._length += fresh
        copied, self._copied, self._started = self._copied, False, True
        return before + fresh + int(copied)

    def _mark_tail(self, moment: Moment) -> None:
        """``MambaManager._cache_partial_tail_block``: the next step copies a state that stands inside a block."""
        rule = self._rule
        tokens = self._cacheable(min(moment.end, moment.known))
        if not rule.copies or tokens <= 0 or tokens % rule.hash_block:
            return
        if tokens == self._boundary(moment.prompt, rule.hash_block) and tokens % rule.block:
            index = -(-tokens // rule.block) - 1
            self._copied = self._copied or index in self._held

    def _cacheable(self, tokens: int) -> int:
        """``HybridKVCacheCoordinator.get_num_cacheable_tokens``."""
        rule, engine = self._rule, self._engine
        if engine.single or engine.partial_hits:
            return tokens
        aligned = tokens // engine.scheduler_block * engine.scheduler_block
        return min(tokens, aligned + rule.block) if rule.draft and aligned else aligned
