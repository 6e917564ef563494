"""What each group's manager in vLLM 0.32 does with blocks, as plain numbers taken from the manifests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self

from vstate.schemas.manifests import EngineSettings, GroupManifest


def ceil_blocks(tokens: int, block_tokens: int) -> int:
    """Blocks that ``tokens`` tokens take, the last one perhaps partly filled."""
    return -(-tokens // block_tokens)


class Kind(Enum):
    """How a group's blocks follow from tokens.

    Attributes:
        PAGED: A table of positions that grows with what is scheduled and may lose its beginning.
        STATES: Whole states, kept where steps end (``MambaManager`` in mode ``align``).
        ENCODER: A table over the encoder's tokens.
        FIXED: The same number for every request.
    """

    PAGED = "paged"
    STATES = "states"
    ENCODER = "encoder"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class GroupRule:
    """One group; two groups with equal rules hold equally many blocks.

    Attributes:
        kind: How blocks follow from tokens.
        block: Tokens of a block.
        window: Tokens below the next one that stay, of a sliding window; -1 for no window.
        hit_blocks: Blocks that a prefix hit brings at most; -1 for all (``_contiguous_blocks_for_hit``).
        chunk: Tokens of a chunk of chunked local attention; 0 for none.
        decode_window: Tokens that stay beside the prompt (``RSWAManager``); 0 for none.
        extra: Blocks beyond those of tokens: draft slots of states.
        cached: Whether a prefix hit brings blocks of it.
        copies: Whether a hit, or the end of a prompt, inside a block makes a copy of it.
        hash_block: Tokens of one block hash.
        checkpoint: Whether a prefill may export a state from inside a chunk.
        checkpoint_alignment: Distances from a chunk's start at which it can.
        draft: Whether it counts as a draft's group.
        fixed: Blocks of a request in a group of kind ``FIXED``.
        encoder_tokens: Most encoder tokens of a request.
    """

    kind: Kind
    block: int
    window: int = -1
    hit_blocks: int = -1
    chunk: int = 0
    decode_window: int = 0
    extra: int = 0
    cached: bool = True
    copies: bool = False
    hash_block: int = 1
    checkpoint: bool = False
    checkpoint_alignment: int = 1
    draft: bool = False
    fixed: int = 0
    encoder_tokens: int = 0

    @classmethod
    def of(cls, group: GroupManifest, settings: EngineSettings) -> Self:
        """Take a group's rule from its manifest."""
        block, draft = group.block_tokens, group.draft
        hash_block = group.hash_block_tokens or (1 if group.partial_hits else block)
        if group.fixed_blocks:
            return cls(Kind.FIXED, block, fixed=group.fixed_blocks)
        if group.encoder_tokens:
            return cls(Kind.ENCODER, block, encoder_tokens=group.encoder_tokens)
        if group.state_mode == "align":
            finer = settings.prefix_caching and hash_block < block
            return cls(
                Kind.STATES,
                block,
                extra=group.speculative_blocks,
                # A draft's group caches past the aligned end (`get_num_cacheable_tokens`), so that a prompt's tail
                # inside a block may be cached, and then copied, even where no hit may end there.
                copies=finer and (group.partial_hits or draft),
                hash_block=hash_block,
                checkpoint=group.checkpoint_blocks > 0,
                checkpoint_alignment=max(group.checkpoint_alignment_tokens, 1),
                draft=draft,
            )
        if group.state_mode:
            # Keeps the state of the last token alone (`MambaManager.get_num_skipped_tokens`): a window of one.
            return cls(Kind.PAGED, block, window=1, extra=group.speculative_blocks)
        window, hit_blocks = -1, -1
        if group.window_tokens:
            window = group.window_tokens - 1 + group.retained_tokens
            hit_blocks = max(ceil_blocks(group.window_tokens - 1, block), int(not draft))
        return cls(
            Kind.PAGED,
            block,
            window=window,
            hit_blocks=hit_blocks,
            chunk=group.attention_chunk_tokens,
            decode_window=group.decode_window_tokens,
            cached=group.prefix_cacheable,
            copies=settings.prefix_caching and group.partial_hits and hash_block < block,
            hash_block=hash_block,
            draft=draft,
        )


@dataclass(frozen=True, slots=True)
class EngineRule:
    """What the scheduler may do with one request.

    Attributes:
        model_len: Longest request in tokens.
        chunk: Most tokens of a step.
        steps: Steps that may be in flight.
        decodes: Of those, the ones that may be decode steps of one request: the plain scheduler waits for a sampled
            token before it schedules the next (``Scheduler.schedule``, ``AsyncScheduler``).
        behind: Decode steps that may be in flight behind the end of a prefill.
        drafts: Draft tokens of a decode step, scheduled whole even where fewer are still to come.
        lookahead: Slots that a draft model writes past them (``KVCacheManager.allocate_slots``).
        padded: Whether a request of which one token is left to prefill may be scheduled like a decode step, with
            drafts (``pad_spec_decode``): after a hit, or where its prompt is one token long.
        scheduler_block: Tokens at which hits are rounded.
        partial_hits: Whether some group's hit may end inside a block.
        drops_draft_block: Whether hits give up their last block for a draft.
        sparse: Whether states are kept at replay boundaries alone (retention interval 0).
        single: Whether there is one group only.
    """

    model_len: int
    chunk: int
    steps: int
    decodes: int
    behind: int
    drafts: int
    lookahead: int
    padded: bool
    scheduler_block: int
    partial_hits: bool
    drops_draft_block: bool
    sparse: bool
    single: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of an engine.

    Attributes:
        engine: Those of its scheduler.
        distinct: Different rules of groups.
        place: For each group, which of them is its own.
    """

    engine: EngineRule
    distinct: tuple[GroupRule, ...]
    place: tuple[int, ...]

    @classmethod
    def of(cls, groups: Sequence[GroupManifest], settings: EngineSettings) -> Self:
        """Take the rules from the manifests of an engine's groups and its settings."""
        rules = [GroupRule.of(group, settings) for group in groups]
        distinct = tuple(dict.fromkeys(rules))
        return cls(_engine_rule(groups, settings), distinct, tuple(distinct.index(rule) for rule in rules))

    @property
    def groups(self) -> tuple[GroupRule, ...]:
        """The rule of each group."""
        return tuple(self.distinct[index] for index in self.place)


def _engine_rule(groups: Sequence[GroupManifest], settings: EngineSettings) -> EngineRule:
    steps = ceil_blocks(settings.max_in_flight_tokens, settings.max_batched_tokens)
    return EngineRule(
        model_len=settings.max_model_len_tokens,
        chunk=settings.max_batched_tokens,
        steps=steps,
        decodes=steps if settings.async_scheduling else 1,
        behind=steps - 1 if settings.async_scheduling else 0,
        drafts=settings.draft_tokens,
        lookahead=settings.lookahead_tokens,
        padded=settings.draft_tokens > 0 and settings.prefix_caching,
        scheduler_block=settings.scheduler_block_tokens,
        partial_hits=any(group.partial_hits for group in groups),
        drops_draft_block=any(group.draft for group in groups),
        sparse=settings.retention_interval_tokens == 0,
        single=len(groups) == 1,
    )
