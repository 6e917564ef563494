"""Groups and engines of a few words, and the blocks each kind of attention needs, counted one by one."""

from vstate.schemas.component import StateComponent
from vstate.schemas.manifests import EngineSettings, GroupManifest


def group(state_class="full_kv", **fields):
    component = StateComponent(
        id="g0/target/x",
        state_class=state_class,
        owner="target",
        pool=0,
        group=0,
        layers=("l",),
        dtype="bfloat16",
        unit="token",
        useful_bytes_per_unit=1,
        useful_bytes_per_block=1,
        charged_bytes_per_block=1,
        lifetime="request",
        mutability="append_only",
        eviction="lru",
        shareable="always",
        boundary_tokens=1,
    )
    defaults = {"group": 0, "pool": 0, "spec_kind": "x", "manager": "x", "layers": ("l",), "block_tokens": 16}
    return GroupManifest(**(defaults | {"components": (component,)} | fields))


def engine(**fields):
    defaults = {
        "model": "m",
        "architecture": "A",
        "dtype": "bfloat16",
        "cache_dtype": "auto",
        "max_model_len_tokens": 10_000,
        "max_batched_tokens": 64,
        "max_in_flight_tokens": 64,
        "lookahead_tokens": 0,
        "max_num_seqs": 8,
        "scheduler_block_tokens": 16,
        "prefix_caching": True,
        "chunked_prefill": True,
        "reserve_full_prompt": True,
        "watermark_blocks": 0,
        "async_scheduling": False,
        "policy": "fcfs",
    }
    return EngineSettings(**(defaults | fields))


def engine_of(choices):
    return engine(
        max_model_len_tokens=choices.model_len,
        max_batched_tokens=choices.chunk,
        max_in_flight_tokens=choices.chunk * choices.steps,
        async_scheduling=choices.asynchronous,
        draft_tokens=choices.drafts,
        lookahead_tokens=choices.lookahead,
        prefix_caching=choices.caching,
    )


def blocks_needed(kind, size, prompt, processed, slots):
    """Positions that a table of blocks of ``block`` tokens must still have, for each token that is needed."""
    if kind == "full":
        return range(slots)
    if kind == "window":
        return range(max(0, processed - size + 1), slots)
    if kind == "chunk":
        return range(processed - processed % size, slots)
    kept = [position for position in range(slots) if position < prompt or position >= processed - size]
    return kept


def held(kind, size, block, prompt, processed, slots):
    """Blocks that are held: those of needed tokens, and of a window's beside a prompt only whole ones are let go."""
    return len({position // block for position in blocks_needed(kind, size, prompt, processed, slots)})


KINDS = {
    "full": lambda block, size: group(block_tokens=block),
    "window": lambda block, size: group("sliding_kv", block_tokens=block, window_tokens=size),
    "chunk": lambda block, size: group("sliding_kv", block_tokens=block, attention_chunk_tokens=size),
    "reference": lambda block, size: group(block_tokens=block, decode_window_tokens=size),
}
