"""How the true-size models take media: the tokens that stand for them, and the files of their processors.

Sizes are those of the checkpoints. Token ids stand where a configuration names them; words
that only a processor asks for have ids beside those.
"""

from __future__ import annotations

from vstate.tracer.models.model import Media

_QWEN_TOKENS = {248053: "<|vision_start|>", 248054: "<|vision_end|>", 248056: "<|image_pad|>", 248057: "<|video_pad|>"}
QWEN_MEDIA = Media(
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

# Sounds are left out: vLLM 0.32 resamples them to 24 kHz with torchaudio, which does not load beside a torch for CPUs.
MIMO_MEDIA = Media(
    placeholders={"image": (151652, 151655, 151653)},
    special_tokens={
        151652: "<|vision_start|>",
        151653: "<|vision_end|>",
        151655: "<|image_pad|>",
        151656: "<|video_pad|>",
        151669: "<|audio_pad|>",
        151670: "<|mimo_video_start|>",
        151671: "<|mimo_video_end|>",
        151673: "<|mimo_audio_start|>",
        151674: "<|mimo_audio_end|>",
    },
)

OMNI_MEDIA = Media(
    placeholders={"image": (131066,), "audio": (131070,)},
    special_tokens={
        131064: "<img>",
        131065: "</img>",
        131066: "<image>",
        131067: "<video>",
        131068: "<so_start>",
        131069: "<so_end>",
        131070: "<so_embedding>",
    },
)

STEP_MEDIA = Media(
    placeholders={"image": (128001,)},
    special_tokens={
        128001: "<im_patch>",
        128002: "<im_start>",
        128003: "<im_end>",
        128004: "<patch_start>",
        128005: "<patch_end>",
        128006: "<patch_newline>",
    },
)
