"""Turns the prompts of a workload into what vLLM takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vstate.schemas.errors import VstateError
from vstate.schemas.workload import HashedBlocks, MediaKind, MediaSegment, Segment, WorkloadRequest, text_tokens
from vstate.tracer.workloads.media import engine_media
from vstate.tracer.workloads.tokens import TokenSource


class PromptSource:
    """Makes prompts of token ids, media standing in them as the model's placeholders.

    Attributes:
        block_tokens: Unit of the workload's lengths.
    """

    def __init__(
        self,
        seed: int,
        vocabulary: int,
        placeholders: Mapping[MediaKind, Sequence[int]],
        block_tokens: int,
    ) -> None:
        """Draw content from ``seed``.

        Args:
            seed: Seed of all content.
            vocabulary: Text tokens are below it.
            placeholders: Token ids that stand for one item of a kind.
            block_tokens: Unit of the lengths.
        """
        self._seed = seed
        self._tokens = TokenSource(seed, vocabulary)
        self._placeholders = placeholders
        self.block_tokens = block_tokens

    def prompt(self, request: WorkloadRequest) -> dict[str, Any]:
        """Return the request's prompt as vLLM takes it.

        Raises:
            VstateError: The model takes no such media.
        """
        media: dict[str, list[Any]] = {}
        for part in request.prompt:
            if isinstance(part, MediaSegment):
                media.setdefault(part.media.kind, []).append(engine_media(part.media, self._seed))
        prompt: dict[str, Any] = {"prompt_token_ids": self.token_ids(request)}
        return prompt | {"multi_modal_data": media} if media else prompt

    def token_ids(self, request: WorkloadRequest) -> list[int]:
        """Return the prompt's tokens before vLLM puts media in the place of their placeholders.

        Raises:
            VstateError: The model takes no such media.
        """
        token_ids: list[int] = []
        for part in request.prompt:
            if isinstance(part, MediaSegment):
                token_ids += self.placeholder(request.id, part.media.kind)
            else:
                token_ids += self.part_tokens(part)
        return token_ids

    def part_tokens(self, part: Segment | HashedBlocks) -> list[int]:
        """Return the tokens of a part that is no media item."""
        if isinstance(part, HashedBlocks):
            return self._tokens.hashed(part.block_ranges, part.block_tokens, part.tokens)
        return self._tokens.segment(part.name, part.length.resolve(self.block_tokens))

    def least_tokens(self, request: WorkloadRequest) -> int:
        """Return how many tokens the prompt has at least: a media item counts as its placeholder."""
        media = (part.media.kind for part in request.prompt if isinstance(part, MediaSegment))
        return text_tokens(request, self.block_tokens) + sum(len(self.placeholder(request.id, kind)) for kind in media)

    def output_tokens(self, request: WorkloadRequest) -> int:
        """Return the length of the request's output."""
        return request.output.resolve(self.block_tokens)

    def placeholder(self, request: str, kind: MediaKind) -> Sequence[int]:
        """Return the tokens that stand for an item of a request.

        Raises:
            VstateError: The model takes no such media.
        """
        if kind not in self._placeholders:
            takes = f"only {', '.join(self._placeholders)}" if self._placeholders else "no media"
            raise VstateError(f"request {request!r} holds media of kind {kind}; the model takes {takes}")
        return self._placeholders[kind]
