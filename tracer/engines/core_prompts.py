"""Turns the prompts of a workload into what an engine core takes, without processing each media item.

How many tokens and rows an item takes depends on its kind and size. The model's own processor is run once for each,
and its answer stands for all items of that size; each item keeps an identity of its own, so that equal items
share their encoder output and others do not. The contents are left out: nothing computes with them.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from vstate.schemas.workload import MediaItem, MediaSegment, WorkloadRequest
from vstate.tracer.workloads.media import engine_media
from vstate.tracer.workloads.prompts import PromptSource


class CorePrompt(NamedTuple):
    """A prompt with media in the place of their placeholders.

    Attributes:
        token_ids: Its tokens.
        features: A `MultiModalFeatureSpec` for each item, in their order; None for text.
    """

    token_ids: list[int]
    features: list[Any] | None


class _Processed(NamedTuple):
    """What the processor made of one item: its tokens, and where among them its rows stand."""

    token_ids: list[int]
    modality: str
    place: Any


class CorePrompts:
    """Makes prompts for an engine core."""

    def __init__(self, text: PromptSource, seed: int, vllm_config: Any) -> None:
        """Take text from ``text`` and process media as the model of ``vllm_config`` does."""
        self._text = text
        self._seed = seed
        self._vllm_config = vllm_config
        self._renderer: Any = None
        self._processed: dict[tuple[Any, ...], _Processed] = {}

    def output_tokens(self, request: WorkloadRequest) -> int:
        """Return the length of the request's output."""
        return self._text.output_tokens(request)

    def prompt(self, request: WorkloadRequest) -> CorePrompt:
        """Return the request's prompt.

        Raises:
            VstateError: The model takes no such media.
        """
        if not any(isinstance(part, MediaSegment) for part in request.prompt):
            return CorePrompt(self._text.token_ids(request), None)
        from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

        token_ids: list[int] = []
        features: list[Any] = []
        for part in request.prompt:
            if not isinstance(part, MediaSegment):
                token_ids += self._text.part_tokens(part)
                continue
            found = self._process(request.id, part.media)
            place = PlaceholderRange(len(token_ids) + found.place.offset, found.place.length, found.place.is_embed)
            identity = _identity(part.media, self._seed)
            features.append(MultiModalFeatureSpec(None, found.modality, identity, place, identity))
            token_ids += found.token_ids
        return CorePrompt(token_ids, features)

    def _process(self, request: str, item: MediaItem) -> _Processed:
        size = (item.kind, item.width, item.height, item.frames, item.seconds)
        if size not in self._processed:
            self._processed[size] = self._run_processor(request, item)
        return self._processed[size]

    def _run_processor(self, request: str, item: MediaItem) -> _Processed:
        placeholder = self._text.placeholder(request, item.kind)
        if self._renderer is None:
            from vllm.renderers import renderer_from_config

            self._renderer = renderer_from_config(self._vllm_config)
        prompt = {
            "prompt_token_ids": list(placeholder),
            "multi_modal_data": {item.kind: [engine_media(item, self._seed)]},
        }
        (rendered,) = self._renderer.render_cmpl([prompt])
        ((modality, places),) = rendered["mm_placeholders"].items()
        (place,) = places
        return _Processed(list(rendered["prompt_token_ids"]), modality, place)


def _identity(item: MediaItem, seed: int) -> str:
    """Return an identity that equal items share."""
    return hashlib.blake2b(f"{seed}:{item.model_dump_json()}".encode(), digest_size=32).hexdigest()
