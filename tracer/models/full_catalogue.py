"""The true-size models by name. What their configurations say stands in `full/`."""

from __future__ import annotations

from typing import Any

from vstate.tracer.models.full_model import FullModel
from vstate.tracer.models.model import Draft, Media

# vLLM chooses the type of a recurrent state by the CPU's instructions. Said here, as the checkpoint says it, a
# model has the geometry of its deployment on every machine.
FLOAT_STATE: dict[str, Any] = {"mamba_ssm_cache_dtype": "float32"}
ONE_TOKEN_MTP = Draft("mtp", 1)

_QWEN_TOKENS = {248053: "<|vision_start|>", 248054: "<|vision_end|>", 248056: "<|image_pad|>", 248057: "<|video_pad|>"}
_QWEN_MEDIA = Media(
    placeholders={"image": (248053, 248056, 248054), "video": (248053, 248057, 248054)},
    special_tokens=_QWEN_TOKENS,
    files={
        "preprocessor_config.json": {
            "image_processor_type": "Qwen2VLImageProcessor",
            "patch_size": 16,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "size": {"shortest_edge": 65536, "longest_edge": 16777216},
        },
        "video_preprocessor_config.json": {
            "video_processor_type": "Qwen3VLVideoProcessor",
            "patch_size": 16,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "size": {"shortest_edge": 4096, "longest_edge": 25165824},
        },
    },
)

MODELS = (
    FullModel("lfm2.5-8b-a1b", "short convolution and full KV"),
    FullModel(
        "qwen3.6-35b-a3b",
        "GatedDeltaNet (recurrent and convolution), full KV, draft KV of a native head, encoder outputs",
        FLOAT_STATE,
        draft=ONE_TOKEN_MTP,
        media=_QWEN_MEDIA,
    ),
    FullModel(
        "qwen3.6-27b",
        "GatedDeltaNet (recurrent and convolution), full KV, draft KV of a native head, encoder outputs",
        FLOAT_STATE,
        draft=ONE_TOKEN_MTP,
        media=_QWEN_MEDIA,
    ),
)
