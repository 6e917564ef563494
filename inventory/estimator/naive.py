"""The estimate that everybody makes: keys and values per token, everything else nothing."""

from __future__ import annotations

from vstate.inventory.estimator.rules import ceil_blocks
from vstate.schemas.manifests import GroupManifest
from vstate.schemas.vocabulary import ATTENTION_CLASSES


def naive_blocks(group: GroupManifest, prompt_tokens: int, max_tokens: int) -> int:
    """Blocks by "KV per token": attention charged for every token, everything else zero."""
    if not any(component.state_class in ATTENTION_CLASSES for component in group.components):
        return 0
    return ceil_blocks(prompt_tokens + max_tokens, group.block_tokens)
