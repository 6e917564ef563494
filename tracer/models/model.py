"""What a tiny model is: its configuration, the engine settings it runs with, its draft and its media."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vstate.schemas.workload import MediaKind


@dataclass(frozen=True)
class Draft:
    """How a model drafts tokens.

    Attributes:
        method: vLLM's name of the method.
        tokens: Draft tokens per step.
        config: Configuration file of a draft that is a model of its own; empty for heads of
            the target and for drafts without a model.
        arguments: Further keys of vLLM's ``speculative_config``.
    """

    method: str
    tokens: int
    config: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def speculative_config(self) -> dict[str, Any]:
        """VLLM's ``speculative_config``, without the place of a draft that is a model of its own."""
        return {"method": self.method, "num_speculative_tokens": self.tokens} | self.arguments


@dataclass(frozen=True)
class Media:
    """How a model takes media.

    Attributes:
        placeholders: Token ids that stand for one item of a kind in a prompt; vLLM puts as
            many as the item takes in the place of the one that it knows.
        special_tokens: Tokens that model and processor know, by id.
        token_names: Attributes of the tokenizer by which a processor asks for them.
        files: Files of the processor, as JSON values.
    """

    placeholders: dict[MediaKind, tuple[int, ...]]
    special_tokens: dict[int, str]
    token_names: dict[str, str] = field(default_factory=dict)
    files: dict[str, Any] = field(default_factory=dict)

    @property
    def text_vocabulary(self) -> int:
        """Token ids below this one are plain text."""
        return min(self.special_tokens)


@dataclass(frozen=True)
class TinyModel:
    """A model that is built locally.

    Attributes:
        name: Name after `tiny/`.
        states: What state it keeps, for listings.
        config: Configuration file in the package.
        smoke_blocks: Blocks of the pool that `smoke` overflows.
        arguments: Engine arguments on top of the common ones.
        draft: How it drafts, if it does.
        media: How it takes media, if it does.
        configuration_module: Module of `remote/` with the configuration class that vLLM
            loads with ``trust_remote_code``; empty for none.
        refused: Settings that the installed engine cannot run, as (setting, value, why).
    """

    name: str
    states: str
    config: str
    smoke_blocks: int
    arguments: dict[str, Any] = field(default_factory=dict)
    draft: Draft | None = None
    media: Media | None = None
    configuration_module: str = ""
    refused: tuple[tuple[str, Any, str], ...] = ()
