"""vLLM's own KV cache manager, led through the life of one request without an engine.

What a step is called with follows ``Scheduler.schedule`` and ``update_from_output``; every number that is compared is
read from the manager: blocks that are not null in its tables, and the most of them while blocks were taken.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1 import kv_cache_interface as interface
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.request import Request, RequestStatus

from vstate.inventory.estimator import Attempt, Rules, Step, StepBlocks
from vstate.inventory.from_vllm import group_manifests
from vstate.schemas.manifests import EngineSettings

init_none_hash(sha256)
ATTENTION = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.bfloat16}
STATE = {"shapes": ((2,),), "dtypes": (torch.float32,)}


def full(block: int, **more: Any) -> Any:
    return interface.FullAttentionSpec(block_size=block, **ATTENTION, **more)


def latent(block: int) -> Any:
    return interface.MLAAttentionSpec(block_size=block, **ATTENTION)


def sliding(block: int, window: int, retained: int = 0) -> Any:
    own = {"sliding_window": window, "extra_retained_tokens": retained, "dcp_sharded": False}
    return interface.SlidingWindowSpec(block_size=block, **ATTENTION, **own)


def latent_window(block: int, window: int, **more: Any) -> Any:
    own = {"sliding_window": window, "dcp_sharded": False}
    return interface.SlidingWindowMLASpec(block_size=block, **ATTENTION, **own, **more)


def chunked(block: int, chunk: int) -> Any:
    return interface.ChunkedLocalAttentionSpec(block_size=block, **ATTENTION, attention_chunk_size=chunk)


def reference(block: int, window: int) -> Any:
    return interface.RSWASpec(block_size=block, **ATTENTION, rswa_window=window)


def ring(block: int) -> Any:
    return interface.CircularBufferSpec(block_size=block, **ATTENTION)


def cross(block: int) -> Any:
    return interface.CrossAttentionSpec(block_size=block, **ATTENTION)


def hidden(block: int) -> Any:
    return interface.HiddenStateCacheSpec(block_size=block, **ATTENTION)


def state(block: int, mode: str = "align", **more: Any) -> Any:
    return interface.MambaSpec(block_size=block, **STATE, mamba_cache_mode=mode, **more)


@dataclass
class Engine:
    """The settings of an engine, and its groups as (spec, whether flagged as a draft's)."""

    groups: Sequence[tuple[Any, bool]]
    scheduler_block: int
    hash_block: int = 0
    caching: bool = True
    retention: int | None = None
    lookahead: int = 0
    drafts: int = 0
    drops_draft_block: bool = False
    prefill_lookahead: int = 0
    chunk: int = 64
    steps: int = 1
    asynchronous: bool = False
    model_len: int = 100_000
    blocks: int = 4096
    encoder_tokens: int = 0
    kv_cache_config: Any = field(init=False)

    def __post_init__(self) -> None:
        self.hash_block = self.hash_block or self.scheduler_block
        self.kv_cache_config = interface.KVCacheConfig(
            num_blocks=self.blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[
                interface.KVCacheGroupSpec([f"model.layers.{index}.attn"], spec, is_eagle_group=draft)
                for index, (spec, draft) in enumerate(self.groups)
            ],
            prefix_cache_retention_interval=self.retention,
        )

    def settings(self) -> EngineSettings:
        return EngineSettings(
            model="m",
            architecture="A",
            dtype="bfloat16",
            cache_dtype="auto",
            max_model_len_tokens=self.model_len,
            max_batched_tokens=self.chunk,
            max_in_flight_tokens=self.chunk * self.steps,
            lookahead_tokens=self.lookahead,
            draft_tokens=self.drafts,
            max_num_seqs=8,
            scheduler_block_tokens=self.scheduler_block,
            prefix_caching=self.caching,
            chunked_prefill=True,
            reserve_full_prompt=True,
            watermark_blocks=0,
            async_scheduling=self.asynchronous,
            policy="fcfs",
            retention_interval_tokens=self.retention,
        )

    def manager(self) -> KVCacheManager:
        return KVCacheManager(
            self.kv_cache_config,
            max_model_len=self.model_len,
            scheduler_block_size=self.scheduler_block,
            hash_block_size=self.hash_block,
            max_in_flight_tokens=self.chunk * self.steps,
            enable_caching=self.caching,
            use_eagle=self.drops_draft_block,
            num_prefill_lookahead=self.prefill_lookahead,
        )

    def rules(self, manager: KVCacheManager) -> Rules:
        """The estimator's rules, through what `from_vllm` reads of the live managers."""
        config = SimpleNamespace(
            speculative_config=None,
            scheduler_config=SimpleNamespace(max_num_encoder_input_tokens=self.encoder_tokens),
        )
        scheduler = SimpleNamespace(
            kv_cache_manager=manager,
            kv_cache_config=self.kv_cache_config,
            vllm_config=config,
            block_size=self.scheduler_block,
        )
        return Rules.of(group_manifests(scheduler, {}), self.settings())

    def request(self, name: str, tokens: Sequence[int], output: int) -> Request:
        hasher = get_request_block_hasher(self.hash_block, sha256) if self.caching else None
        params = SamplingParams(max_tokens=output, ignore_eos=True)
        return Request(name, list(tokens), params, None, block_hasher=hasher)


def resident(manager: KVCacheManager, request_id: str) -> tuple[int, ...]:
    """Blocks in each table that are not the null block."""
    tables = (single.req_to_blocks.get(request_id, ()) for single in manager.coordinator.single_type_managers)
    return tuple(sum(not block.is_null for block in table) for table in tables)


class Watch:
    """Notes the most blocks that a request holds while its manager takes some."""

    def __init__(self, manager: KVCacheManager) -> None:
        self.manager = manager
        self.peak: list[int] = []
        self.request_id = ""
        pool = manager.block_pool
        take = pool.get_new_blocks

        def get_new_blocks(count: int) -> Any:
            blocks = take(count)
            owner = sys._getframe(1).f_locals["self"]
            group = owner.kv_cache_group_id
            self.peak[group] = max(self.peak[group], resident(manager, self.request_id)[group] + count)
            return blocks

        pool.get_new_blocks = get_new_blocks

    def begins(self, request_id: str) -> None:
        self.request_id = request_id
        self.peak = [0] * len(self.manager.coordinator.single_type_managers)

    def ends(self) -> StepBlocks:
        held = resident(self.manager, self.request_id)
        return StepBlocks(tuple(map(max, self.peak, held)), held)


class Shadow:
    """One request in its manager; what it was led through is its trajectory."""

    def __init__(
        self, engine: Engine, manager: KVCacheManager, watch: Watch, request: Request, encoder_tokens: int = 0
    ) -> None:
        self.engine = engine
        self.manager = manager
        self.watch = watch
        self.request = request
        self.encoder_tokens = encoder_tokens
        self.flying: deque[tuple[int, int, int, bool, int]] = deque()
        self.attempts: list[tuple[int, int, list[Step]]] = []
        self.seen: list[StepBlocks] = []
        self.attempt_steps = 0
        self.sampling = False

    @property
    def trajectory(self) -> tuple[Attempt, ...]:
        return tuple(Attempt(tuple(steps), hit, known) for known, hit, steps in self.attempts)

    @property
    def computed(self) -> int:
        return int(self.request.num_computed_tokens)

    @property
    def known(self) -> int:
        return int(self.request.num_tokens)

    def admit(self) -> int:
        """Look for a cached prefix; return its tokens."""
        self.request.status = RequestStatus.WAITING
        blocks, hit, junction = self.manager.get_computed_blocks(self.request)
        self.request.shared_prefix_boundary = junction
        self.attempts.append((self.known, hit, []))
        self.sampling = False
        self._hit = (blocks, hit)
        return hit

    def schedule(self, tokens: int, drafts: int = 0, accepted: int = 0) -> None:
        """Schedule a step; its outcome counts when `process` gets to it."""
        known, hit, steps = self.attempts[-1]
        first = not steps
        own = [entry for entry in self.flying if entry[4] == len(self.attempts)]
        stale = sum(entry[0] for entry in self.flying) - sum(entry[0] for entry in own)
        steps.append(Step(tokens, drafts, accepted, len(own), stale))
        blocks, found = self._hit if first else (None, 0)
        self.manager.new_step_starts()
        self.watch.begins(self.request.request_id)
        given = self.manager.allocate_slots(
            self.request,
            tokens,
            num_new_computed_tokens=found,
            new_computed_blocks=blocks,
            num_lookahead_tokens=self.engine.lookahead,
            num_encoder_tokens=self.encoder_tokens if first else 0,
        )
        assert given is not None
        self.seen.append(self.watch.ends())
        _, retained = self.manager.take_kv_cache_block_copies()
        self.manager.block_pool.free_blocks(retained)
        self.request.status = RequestStatus.RUNNING
        self.request.num_computed_tokens += found + tokens
        self.request.num_in_flight_tokens += tokens
        self.sampling = self.sampling or self.computed - drafts >= known
        self.flying.append((tokens, drafts, accepted, self.sampling, len(self.attempts)))

    def process(self) -> None:
        """Take in what the oldest step in flight brought."""
        tokens, drafts, accepted, samples, attempt = self.flying.popleft()
        self.request.num_in_flight_tokens -= tokens
        if attempt == len(self.attempts):
            self.request.num_computed_tokens -= drafts - accepted
        if samples:
            self.request.append_output_token_ids([7] * (1 + accepted))

    def preempt(self) -> None:
        self.manager.free(self.request)
        self.request.num_computed_tokens = 0

    def end(self) -> None:
        self.manager.free(self.request)
