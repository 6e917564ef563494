"""The page that a layer takes in one block of its group, and the sizes that all layers' blocks must agree on.

Formulas: ``Platform._align_hybrid_block_size`` and ``update_block_size_for_backend`` (vLLM 0.32
``platforms/interface.py``), ``get_kv_cache_spec`` of the layers, ``KVCacheSpec.page_size_bytes``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import lcm

from vstate.inventory.adapters.plan import AttentionLayer, Kernel, Layer, ModelPlan, StateLayer
from vstate.inventory.dtypes import cache_dtype, dtype_bytes
from vstate.inventory.profiles import PlatformProfile
from vstate.inventory.serving import ServingSettings
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import StateClass


class PageKind(StrEnum):
    """How a group's blocks are managed; the value is vLLM's kind of spec."""

    FULL = "FullAttentionSpec"
    LATENT = "MLAAttentionSpec"
    SLIDING = "SlidingWindowSpec"
    CHUNKED = "ChunkedLocalAttentionSpec"
    CROSS = "CrossAttentionSpec"
    STATE = "MambaSpec"


MANAGERS = {
    PageKind.FULL: "FullAttentionManager",
    PageKind.LATENT: "FullAttentionManager",
    PageKind.SLIDING: "SlidingWindowManager",
    PageKind.CHUNKED: "ChunkedLocalAttentionManager",
    PageKind.CROSS: "CrossAttentionManager",
    PageKind.STATE: "MambaManager",
}
"""vLLM's manager of each kind (``register_all_kvcache_specs``)."""
KEEPS_ALL = frozenset({PageKind.FULL, PageKind.LATENT})
"""Kinds that keep a block of every token, and that one group may mix."""


@dataclass(frozen=True)
class Page:
    """One layer's page in one block.

    Attributes:
        kind: How its blocks are managed.
        block_tokens: Tokens of a block.
        token_bytes: Bytes of one token; 0 for a whole state.
        state_bytes: Bytes of a whole state; 0 for what grows with tokens.
        padded_bytes: Bytes of the page with padding; 0 for none.
        window_tokens: Sliding window; 0 for none.
        chunk_tokens: Chunk of chunked local attention; 0 for none.
        traits: All else in which two layers must agree to share a group.
    """

    kind: PageKind
    block_tokens: int
    token_bytes: int = 0
    state_bytes: int = 0
    padded_bytes: int = 0
    window_tokens: int = 0
    chunk_tokens: int = 0
    traits: tuple[object, ...] = ()

    @property
    def content_bytes(self) -> int:
        """Bytes without padding."""
        return self.state_bytes or self.token_bytes * self.block_tokens

    @property
    def bytes(self) -> int:
        """Bytes with padding."""
        return self.padded_bytes or self.content_bytes


@dataclass(frozen=True)
class BlockSizes:
    """Sizes that all layers' blocks must agree on.

    Attributes:
        block_tokens: Tokens of a block of attention.
        state_block_tokens: Tokens of a block of whole states.
        state_mode: ``align`` or ``none``; empty for a model without whole states.
        state_page_bytes: Bytes to which a page of whole states is padded; 0 for no padding.
    """

    block_tokens: int
    state_block_tokens: int = 0
    state_mode: str = ""
    state_page_bytes: int = 0


def settle_block_sizes(plan: ModelPlan, settings: ServingSettings, profile: PlatformProfile, dtype: str) -> BlockSizes:
    """Say how many tokens a block has.

    A block of attention must take at least as many bytes as the largest whole state, whose page is padded to
    exactly that size.

    Raises:
        VstateError: The layers' kernels have no block size in common.
    """
    kernels = list(dict.fromkeys(layer.kernel for layer in plan.attention_layers))
    asked = settings.block_size or _default_block(kernels, profile)
    for kernel in kernels:
        if asked % profile.blocks[kernel].multiple:
            raise VstateError(
                f"a block of {asked} tokens does not fit {kernel} kernels on {profile.name}; "
                f"give a multiple of {profile.blocks[kernel].multiple}"
            )
    states = plan.state_layers
    if not states:
        return BlockSizes(asked)
    mode = "align" if settings.enable_prefix_caching else "none"
    context = settings.max_model_len or plan.max_positions
    state = max(layer.state_bytes for layer in states)
    if not kernels or not state:
        return BlockSizes(asked, asked if mode == "align" else context, mode)
    heads, head = plan.block_heads, plan.block_head_size
    token = heads * head * 2 * dtype_bytes(cache_dtype(settings.kv_cache_dtype, dtype))
    if any(layer.state_class is StateClass.LATENT_KV for layer in plan.attention_layers):
        token = heads * head * dtype_bytes(cache_dtype(settings.kv_cache_dtype, dtype))
    first = max(profile.blocks[kernels[0]].multiple, asked)
    every = lcm(*(profile.blocks[kernel].multiple for kernel in kernels))
    needed = _round_up(first * -(-state // (first * token)), every)
    block = max(asked, needed)
    padded = block * token
    return BlockSizes(
        block_tokens=block,
        state_block_tokens=block if mode == "align" else context,
        state_mode=mode,
        state_page_bytes=padded if padded != state else 0,
    )


def page_of(layer: Layer, sizes: BlockSizes, settings: ServingSettings, retained_tokens: int) -> Page:
    """Return the page of a layer before pages are made equal."""
    if isinstance(layer, StateLayer):
        return Page(
            PageKind.STATE,
            sizes.state_block_tokens,
            state_bytes=layer.state_bytes,
            padded_bytes=sizes.state_page_bytes,
            traits=(
                tuple((part.shape, part.dtype) for part in layer.parts),
                settings.draft_tokens,
                layer.checkpoint_blocks,
                tuple(part.state_class for part in layer.parts),
            ),
        )
    kind = _kind(layer)
    return Page(
        kind,
        sizes.block_tokens,
        token_bytes=layer.token_bytes,
        window_tokens=layer.window_tokens if kind is PageKind.SLIDING else 0,
        chunk_tokens=layer.chunk_tokens,
        traits=(
            layer.heads,
            layer.key_size,
            layer.value_size,
            layer.dtype,
            layer.kernel is Kernel.INDEX,
            retained_tokens if kind is PageKind.SLIDING else 0,
        ),
    )


def with_whole_context(page: Page) -> Page:
    """Return the page of a layer that keeps every token, as all do with the hybrid manager disabled."""
    if page.kind in (PageKind.SLIDING, PageKind.CHUNKED):
        return replace(page, kind=PageKind.FULL, window_tokens=0, chunk_tokens=0, traits=(*page.traits[:-1], 0))
    return page


def _kind(layer: AttentionLayer) -> PageKind:
    if layer.state_class in (StateClass.LATENT_KV, StateClass.SPARSE_INDEX):
        return PageKind.LATENT
    if layer.state_class is StateClass.CROSS_KV:
        return PageKind.CROSS
    if layer.chunk_tokens:
        return PageKind.CHUNKED
    return PageKind.SLIDING if layer.window_tokens else PageKind.FULL


def _default_block(kernels: list[Kernel], profile: PlatformProfile) -> int:
    """Return the smallest block that all kernels take, no smaller than the largest of their defaults."""
    defaults = [profile.blocks[kernel].default for kernel in kernels] or [profile.blocks[Kernel.ATTENTION].default]
    return _round_up(max(defaults), lcm(*(profile.blocks[kernel].multiple for kernel in kernels)))


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
