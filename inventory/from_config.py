"""Works out pools, groups and components of an engine that was never started, from a configuration.

Formulas: ``resolve_kv_cache_block_sizes``, ``get_kv_cache_config_from_groups``, ``_annotate_eagle_groups`` (vLLM 0.32
``v1/core/kv_cache_utils.py``), ``VllmConfig.max_in_flight_tokens`` and ``num_lookahead_tokens`` (``config/vllm.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, lcm
from typing import Any

from vstate.inventory.adapters.plan import AttentionLayer, Layer, ModelPlan, StateLayer
from vstate.inventory.adapters.registry import find_adapter, model_dtype
from vstate.inventory.components import Facts, LayerState, components
from vstate.inventory.dtypes import dtype_bytes
from vstate.inventory.grouping import Group, group_layers
from vstate.inventory.outside import encoder_component, weight_component
from vstate.inventory.pages import (
    MANAGERS,
    BlockSizes,
    PageKind,
    page_of,
    settle_block_sizes,
    with_whole_context,
)
from vstate.inventory.profiles import PlatformProfile
from vstate.inventory.serving import ServingSettings
from vstate.schemas.component import StateComponent
from vstate.schemas.errors import VstateError
from vstate.schemas.manifests import EngineSettings, GroupManifest, PoolManifest


@dataclass(frozen=True)
class StaticInventory:
    """What `StateInventory.from_config` is made of.

    Attributes:
        plan: What the adapter says.
        settings: Settings that accounting depends on.
        pools: The pool; none for a model that keeps nothing in blocks.
        groups: Its groups.
        outside: Weights, encoder and encoder cache.
        assumed: What was not said and is taken for granted.
    """

    plan: ModelPlan
    settings: EngineSettings
    pools: tuple[PoolManifest, ...]
    groups: tuple[GroupManifest, ...]
    outside: tuple[StateComponent, ...]
    assumed: tuple[str, ...]


def work_out(config: Mapping[str, Any], settings: ServingSettings, profile: PlatformProfile) -> StaticInventory:
    """Work out what an engine would hold.

    Args:
        config: The model's configuration, as its ``config.json`` has it.
        settings: What the engine would be started with.
        profile: Where it would run.

    Raises:
        VstateError: The architecture, a layer type or a field is unknown or missing, or the model does not fit.
    """
    adapter = find_adapter(config)
    plan = adapter.plan(config, settings, profile)
    return Geometry(adapter.architecture(config), plan, model_dtype(config, settings), settings, profile).work_out()


class Geometry:
    """The geometry of one model in one engine."""

    def __init__(
        self, architecture: str, plan: ModelPlan, dtype: str, settings: ServingSettings, profile: PlatformProfile
    ) -> None:
        """Take what the geometry follows from; ``dtype`` is the model's element type."""
        self._architecture = plan.architecture or architecture
        self._plan = plan
        self._dtype = dtype
        self._settings = settings
        self._profile = profile
        self._layers: dict[str, Layer] = {layer.name: layer for layer in plan.layers}
        self._context = settings.max_model_len or plan.max_positions
        self._batched = settings.max_num_batched_tokens or profile.batched_tokens
        self._steps = _steps_in_flight(settings, profile)
        self._sizes: BlockSizes = settle_block_sizes(plan, settings, profile, dtype)

    def work_out(self) -> StaticInventory:
        """Work it out.

        Raises:
            VstateError: The pool has no room.
        """
        groups = self._groups()
        weights = tuple(weight_component(w.owner, w.part, w.bytes) for w in self._plan.weights if w.bytes)
        block_bytes = max((group.block_bytes for group in groups), default=0)
        blocks = self._num_blocks(block_bytes, sum(part.bytes for part in self._plan.weights)) if groups else 1
        scheduler_block, hash_block = self._hash_blocks(groups)
        settings = self._engine_settings(scheduler_block, blocks)
        pools = (
            PoolManifest(
                pool=0,
                num_blocks=blocks,
                block_bytes=block_bytes,
                total_bytes=block_bytes * blocks,
                hash_block_tokens=hash_block,
                caching=self._settings.enable_prefix_caching,
            ),
        )
        partial = self._partial_hits(groups, hash_block)
        drafts = self._draft_groups(groups)
        manifests = tuple(
            self._manifest(index, group, block_bytes, (scheduler_block, hash_block), partial, index in drafts)
            for index, group in enumerate(groups)
        )
        outside = weights + self._encoder_cache()
        return StaticInventory(self._plan, settings, pools if groups else (), manifests, outside, self._assumed())

    @property
    def _retained(self) -> int:
        """Tokens kept below a window: each module of a native draft reads one further ahead."""
        return max(self._prefill_lookahead - 1, 0)

    @property
    def _prefill_lookahead(self) -> int:
        drafting = self._settings.drafting
        if drafting is None or not drafting.reads_hidden_states:
            return 0
        several = drafting.method == "mtp" and min(self._plan.draft_modules, drafting.tokens) > 1
        return drafting.tokens if several else 1

    def _groups(self) -> list[Group]:
        pages = {
            name: page_of(layer, self._sizes, self._settings, self._retained) for name, layer in self._layers.items()
        }
        if self._settings.disable_hybrid_kv_cache_manager:
            pages = {name: with_whole_context(page) for name, page in pages.items()}
        return group_layers(pages)

    def _num_blocks(self, block_bytes: int, weights: int) -> int:
        settings = self._settings
        if settings.num_gpu_blocks_override is not None:
            return settings.num_gpu_blocks_override
        if settings.kv_cache_memory_bytes is not None:
            memory = settings.kv_cache_memory_bytes
        elif settings.device_memory_bytes:
            memory = int(settings.device_memory_bytes * settings.gpu_memory_utilization) - weights
        else:
            raise VstateError(
                "nothing says how large the pool is; give a device's memory, kv_cache_memory_bytes, "
                "or num_gpu_blocks_override"
            )
        if memory < 2 * block_bytes:
            raise VstateError(
                f"{max(memory, 0)} bytes are left for state, less than two blocks of {block_bytes} bytes; "
                "give a larger device or more tensor-parallel ranks"
            )
        return memory // block_bytes

    def _hash_blocks(self, groups: list[Group]) -> tuple[int, int]:
        """Return the tokens at which the scheduler rounds, and those of one hash."""
        if len(groups) <= 1:
            return self._sizes.block_tokens, self._sizes.block_tokens
        sizes = [group.first.block_tokens for group in groups]
        scheduler = lcm(*sizes)
        states = any(group.first.kind is PageKind.STATE for group in groups)
        if not self._settings.enable_prefix_caching or (states and self._sizes.state_mode != "align"):
            return scheduler, scheduler
        return scheduler, self._settings.prefix_match_unit or gcd(*sizes)

    def _partial_hits(self, groups: list[Group], hash_block: int) -> bool:
        """Say whether a hit may end inside a block: with aligned states whose block is longer than a hash's."""
        if len(groups) <= 1 or not self._settings.enable_prefix_caching or self._sizes.state_mode != "align":
            return False
        if not any(g.first.kind is PageKind.STATE and g.first.block_tokens > hash_block for g in groups):
            return False
        return all(_fine_lookup(group) or group.first.block_tokens == hash_block for group in groups)

    def _draft_groups(self, groups: list[Group]) -> set[int]:
        """Return the groups that are treated as a draft's: that of a native draft's last layer, else all of them."""
        drafting = self._settings.drafting
        if drafting is None or not drafting.reads_hidden_states:
            return set()
        if drafting.method == "mtp" and len(groups) > 1:
            last = next(reversed(self._layers))
            return {index for index, group in enumerate(groups) if last in group.pages}
        return set(range(len(groups)))

    def _manifest(
        self, index: int, group: Group, block_bytes: int, boundaries: tuple[int, int], partial: bool, draft: bool
    ) -> GroupManifest:
        page = group.first
        state = page.kind is PageKind.STATE
        facts = Facts(index, 0, page.block_tokens, boundaries[0], block_bytes)
        states = [
            state for name, its in group.pages.items() for state in self._states(name, its.block_tokens, its.bytes)
        ]
        return GroupManifest(
            group=index,
            pool=0,
            spec_kind=page.kind,
            manager=MANAGERS[page.kind],
            layers=tuple(group.pages),
            block_tokens=page.block_tokens,
            window_tokens=page.window_tokens,
            retained_tokens=self._retained if page.kind is PageKind.SLIDING else 0,
            state_mode=self._sizes.state_mode if state else "",
            speculative_blocks=self._settings.draft_tokens if state else 0,
            checkpoint_blocks=_checkpoints(self._layers[next(iter(group.pages))]),
            # Mamba2's kernel, the only one here that exports a state, does so at any token.
            checkpoint_alignment_tokens=_checkpoints(self._layers[next(iter(group.pages))]),
            attention_chunk_tokens=page.chunk_tokens,
            admission_cap_blocks=self._admission_cap(group),
            draft=draft,
            partial_hits=partial and _fine_lookup(group),
            hash_block_tokens=boundaries[1],
            components=components(states, facts),
        )

    def _states(self, name: str, block_tokens: int, page_bytes: int) -> list[LayerState]:
        layer = self._layers[name]
        if isinstance(layer, AttentionLayer):
            content = layer.token_bytes * block_tokens
            return [LayerState(name, layer.owner, layer.state_class, layer.dtype, content, page_bytes)]
        states = []
        for state_class in dict.fromkeys(part.state_class for part in layer.parts):
            parts = [part for part in layer.parts if part.state_class is state_class]
            dtype = "+".join(dict.fromkeys(part.dtype for part in parts))
            states.append(
                LayerState(name, layer.owner, state_class, dtype, sum(part.bytes for part in parts), page_bytes)
            )
        return states

    def _admission_cap(self, group: Group) -> int:
        """Blocks that vLLM's gate charges a request for at most (``max_admission_blocks_per_request``)."""
        page, in_flight = group.first, self._steps * self._batched
        if page.kind is PageKind.SLIDING:
            span = min(page.window_tokens - 1 + self._retained + in_flight, self._context)
            return -(-span // page.block_tokens) + 1
        if page.kind is PageKind.CHUNKED:
            return -(-min(page.chunk_tokens + in_flight, self._context) // page.block_tokens)
        return 0

    def _engine_settings(self, scheduler_block: int, blocks: int) -> EngineSettings:
        settings = self._settings
        return EngineSettings(
            model=settings.model,
            architecture=self._architecture,
            dtype=self._dtype,
            cache_dtype=settings.kv_cache_dtype,
            max_model_len_tokens=self._context,
            max_batched_tokens=self._batched,
            max_in_flight_tokens=self._steps * self._batched,
            lookahead_tokens=settings.lookahead_tokens,
            draft_tokens=settings.draft_tokens,
            max_num_seqs=settings.max_num_seqs or self._profile.sequences,
            scheduler_block_tokens=scheduler_block,
            prefix_caching=settings.enable_prefix_caching,
            chunked_prefill=settings.enable_chunked_prefill,
            reserve_full_prompt=settings.scheduler_reserve_full_isl,
            watermark_blocks=int(settings.watermark * blocks),
            async_scheduling=self._steps > 1,
            policy=settings.scheduling_policy,
            retention_interval_tokens=settings.prefix_cache_retention_interval,
        )

    def _encoder_cache(self) -> tuple[StateComponent, ...]:
        """Return the encoder cache: room for a step's tokens, or for the largest item where that is more."""
        if self._plan.media is None:
            return ()
        limits = self._settings.limit_mm_per_prompt or {}
        largest = self._plan.media.largest_rows(self._context)
        rows = [count for kind, count in largest.items() if limits.get(kind, 1) > 0]
        if not rows:
            return ()
        row_bytes = self._plan.hidden_size * dtype_bytes(self._dtype)
        return (encoder_component(row_bytes, max(self._batched, *rows), self._dtype),)

    def _assumed(self) -> tuple[str, ...]:
        """Name what was not said."""
        profile, settings = self._profile, self._settings
        taken = [
            ("max_num_batched_tokens", settings.max_num_batched_tokens, self._batched),
            ("max_num_seqs", settings.max_num_seqs, profile.sequences),
            ("max_model_len", settings.max_model_len, self._context),
        ]
        said = [
            f"{name} {value}, which vLLM would take on {profile.name}" for name, asked, value in taken if asked is None
        ]
        return (*self._plan.assumed, *said)


def _fine_lookup(group: Group) -> bool:
    """Say whether the group's manager can find a hit inside a block (``supports_fine_grained_hash_lookup``)."""
    return group.first.kind in (PageKind.FULL, PageKind.LATENT, PageKind.STATE)


def _checkpoints(layer: Layer) -> int:
    return layer.checkpoint_blocks if isinstance(layer, StateLayer) else 0


def _steps_in_flight(settings: ServingSettings, profile: PlatformProfile) -> int:
    if settings.async_scheduling is None:
        return profile.steps_in_flight
    return 2 if settings.async_scheduling else 1
