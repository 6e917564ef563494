"""The first admission bound: blocks a request can hold, from the specs of its groups.

Both functions answer for one request and one group in blocks of that group's table.
They know nothing of a live engine; ``GroupManifest`` and ``EngineSettings`` carry what
matters.
"""

from __future__ import annotations

from vstate.schemas.manifests import EngineSettings, GroupManifest
from vstate.schemas.vocabulary import ATTENTION_CLASSES


def ceil_blocks(tokens: int, block_tokens: int) -> int:
    """Blocks that ``tokens`` tokens take, the last one perhaps partly filled."""
    return -(-tokens // block_tokens)


def naive_blocks(group: GroupManifest, prompt_tokens: int, max_tokens: int) -> int:
    """Blocks by "KV per token": attention charged for every token, everything else zero."""
    if not any(component.state_class in ATTENTION_CLASSES for component in group.components):
        return 0
    return ceil_blocks(prompt_tokens + max_tokens, group.block_tokens)


def bound_blocks(group: GroupManifest, settings: EngineSettings, prompt_tokens: int, max_tokens: int) -> int:
    """Largest number of resident blocks that the request can hold in the group, ever.

    The source of each case is the manager in vLLM 0.32 ``v1/core/single_type_kv_cache_manager.py``
    that allocates for it. A prefix hit that ends inside a block adds one: source and copy are
    both held until the copy has taken the source's place.
    """
    tokens = _slot_tokens(settings, prompt_tokens, max_tokens)
    if group.state_mode:
        blocks = _state_blocks(group, settings, tokens)
    elif group.window_tokens:
        blocks = _window_blocks(group, settings, tokens)
    else:
        blocks = ceil_blocks(tokens, group.block_tokens)
    return blocks + int(group.partial_hits)


def _slot_tokens(settings: EngineSettings, prompt_tokens: int, max_tokens: int) -> int:
    """Tokens that ever need a slot.

    The last sampled token is never computed, hence the -1. Drafts are scheduled whole even where fewer tokens are
    still to come, by each step in flight that may turn out to be the last (``Scheduler.schedule``); the next draft
    is written ``lookahead_tokens`` past them (``KVCacheManager.allocate_slots``).
    """
    computed = prompt_tokens + max(max_tokens - 1, 0)
    drafted = _steps_in_flight(settings) * settings.draft_tokens if max_tokens > 1 else 0
    return min(computed + drafted + settings.lookahead_tokens, settings.max_model_len_tokens)


def _steps_in_flight(settings: EngineSettings) -> int:
    return ceil_blocks(settings.max_in_flight_tokens, settings.max_batched_tokens)


def _window_blocks(group: GroupManifest, settings: EngineSettings, tokens: int) -> int:
    """Blocks of a sliding window during the largest chunk.

    Blocks below the window go before a chunk's blocks are taken
    (``SlidingWindowManager.get_num_skipped_tokens``), so at most the window's other tokens and
    everything in flight are resident, and the span may begin inside a block.
    """
    in_flight = min(settings.max_in_flight_tokens, tokens) + settings.lookahead_tokens
    span = group.window_tokens - 1 + group.retained_tokens + in_flight
    return min(ceil_blocks(tokens, group.block_tokens), ceil_blocks(span, group.block_tokens) + 1)


def _state_blocks(group: GroupManifest, settings: EngineSettings, tokens: int) -> int:
    """Slots of whole states.

    Mode ``none`` keeps one running state and one slot per draft token. Mode ``align`` holds the
    state of the last boundary until the next one is written (``MambaManager.allocate_new_blocks``).
    """
    if group.state_mode == "none":
        return 1 + group.speculative_blocks
    # States are let go on the processed-token basis: each further step in flight keeps one more.
    boundaries = min(ceil_blocks(tokens, group.block_tokens), 1 + _steps_in_flight(settings))
    return boundaries + group.speculative_blocks + group.checkpoint_blocks
