"""Sorts layers into groups that share a block table, as vLLM does, written from its rules.

Source of the rules: ``get_kv_cache_groups``, ``unify_kv_cache_spec_page_size`` and
``_get_kv_cache_groups_uniform_page_size`` (vLLM 0.32 ``v1/core/kv_cache_utils.py``). Layouts that pack pages of
several sizes side by side (DeepSeek V4) are not here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vstate.inventory.pages import KEEPS_ALL, Page, PageKind
from vstate.schemas.errors import VstateError


@dataclass(frozen=True)
class Group:
    """Layers with one block table.

    Attributes:
        pages: Page of each layer, in the order of the layers.
    """

    pages: Mapping[str, Page]

    @property
    def first(self) -> Page:
        """The page that stands for the group in the scheduler."""
        return next(iter(self.pages.values()))

    @property
    def block_bytes(self) -> int:
        """Bytes that one block of the group takes."""
        return sum(page.bytes for page in self.pages.values())


def group_layers(pages: Mapping[str, Page]) -> list[Group]:
    """Sort layers into groups.

    Args:
        pages: Page of each layer, in the order in which the layers are registered.

    Raises:
        VstateError: Pages cannot be made equal.
    """
    if not pages:
        return []
    if _one_kind(list(pages.values())):
        return [Group(dict(pages))]
    return [Group(part) for part in _equal_parts(_equal_pages(pages))]


def _one_kind(found: Sequence[Page]) -> bool:
    """Say whether all layers need the same slots: then one group takes them all, whatever their sizes."""
    first = found[0]
    if len({page.block_tokens for page in found}) > 1:
        return False
    if first.kind in KEEPS_ALL:
        return all(page.kind in KEEPS_ALL for page in found)
    if any(page.kind is not first.kind for page in found):
        return False
    if first.kind is PageKind.STATE:
        return len({(page.bytes, page.traits[1:3]) for page in found}) == 1
    return len({(page.window_tokens, page.chunk_tokens) for page in found}) == 1


def _equal_pages(pages: Mapping[str, Page]) -> dict[str, Page]:
    """Make all pages as large as the largest: by more tokens in a block where that divides, else by padding."""
    largest = max(page.bytes for page in pages.values())
    equal = {}
    for layer, page in pages.items():
        if page.bytes == largest:
            equal[layer] = page
        elif page.kind is PageKind.STATE:
            equal[layer] = replace(page, padded_bytes=largest)
        elif largest % page.bytes == 0:
            equal[layer] = replace(page, block_tokens=page.block_tokens * (largest // page.bytes))
        elif page.kind is PageKind.LATENT:
            raise VstateError(
                f"{layer}: a page of {page.bytes} bytes cannot be made {largest} bytes; vLLM refuses this model"
            )
        else:
            equal[layer] = replace(page, padded_bytes=largest)
    return equal


def _equal_parts(pages: Mapping[str, Page]) -> list[dict[str, Page]]:
    """Split the layers of each kind into parts of one size; the last part of a kind may lack a layer."""
    kinds: dict[Page, list[str]] = {}
    for layer, page in pages.items():
        kinds.setdefault(page, []).append(layer)
    fewest, most = min(map(len, kinds.values())), max(map(len, kinds.values()))
    # With nearly as many of each, padding the shorter costs less than a second group for the longer.
    size = most if most < fewest * 1.5 else fewest
    parts = []
    for layers in kinds.values():
        count = -(-len(layers) // size)
        parts += [{layer: pages[layer] for layer in layers[start::count]} for start in range(count)]
    return parts
