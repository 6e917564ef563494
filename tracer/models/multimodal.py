"""The tiny multimodal models. Their towers are real, small, and have random weights too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vstate.tracer.models.model import Draft, Media, TinyModel
from vstate.tracer.models.text import DELTA_STATE, MAMBA_STATE, NO_PRE_COPY

WITH_TOKENIZER: dict[str, Any] = {"skip_tokenizer_init": False}
DELTA = WITH_TOKENIZER | DELTA_STATE
SHORT = WITH_TOKENIZER | {"max_model_len": 1024, "max_num_batched_tokens": 256}

_VISION_TOKENS = {904: "<|vision_start|>", 905: "<|vision_end|>", 906: "<|image_pad|>", 907: "<|video_pad|>"}

_QWEN_MEDIA = Media(
    placeholders={"image": (904, 906, 905), "video": (904, 907, 905)},
    special_tokens=_VISION_TOKENS,
    files={
        "preprocessor_config.json": {
            "image_processor_type": "Qwen2VLImageProcessor",
            "patch_size": 16,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "size": {"shortest_edge": 32 * 32, "longest_edge": 512 * 512},
        },
        "video_preprocessor_config.json": {
            "video_processor_type": "Qwen3VLVideoProcessor",
            "patch_size": 16,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "size": {"shortest_edge": 32 * 32, "longest_edge": 8 * 256 * 256},
        },
    },
)

_QWEN_IMAGES = replace(_QWEN_MEDIA, placeholders={"image": (904, 906, 905)})

_LFM2_MEDIA = Media(
    placeholders={"image": (884,)},
    special_tokens={
        884: "<image>",
        885: "<|image_start|>",
        886: "<|image_end|>",
        887: "<|img_thumbnail|>",
    },
    token_names={
        "image_token": "<image>",
        "image_start_token": "<|image_start|>",
        "image_end_token": "<|image_end|>",
        "image_thumbnail": "<|img_thumbnail|>",
    },
    files={
        "preprocessor_config.json": {
            "image_processor_type": "Lfm2VlImageProcessor",
            "do_image_splitting": False,
            "downsample_factor": 2,
            "encoder_patch_size": 16,
            "min_image_tokens": 4,
            "max_image_tokens": 64,
            "max_num_patches": 256,
            "use_thumbnail": False,
        },
        "processor_config.json": {"processor_class": "Lfm2VlProcessor"},
    },
)

_GEMMA_MEDIA = Media(
    placeholders={"image": (903,)},
    special_tokens={
        903: "<start_of_image>",
        904: "<end_of_image>",
        905: "<image_soft_token>",
        # vLLM joins newlines as Gemma's own tokenizer does and asks for all four.
        **{905 + count: "\n" * count for count in range(1, 5)},
    },
    token_names={
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
    },
    files={
        "preprocessor_config.json": {
            "image_processor_type": "Gemma3ImageProcessor",
            "size": {"height": 224, "width": 224},
        },
        "processor_config.json": {"processor_class": "Gemma3Processor", "image_seq_length": 64},
    },
)

_MIMO_MEDIA = Media(
    placeholders={"image": (904, 906, 905)},
    special_tokens=_VISION_TOKENS
    | {
        908: "<|audio_pad|>",
        909: "<|mimo_audio_start|>",
        910: "<|mimo_audio_end|>",
        911: "<|mimo_video_start|>",
        912: "<|mimo_video_end|>",
    },
)

_NEMOTRON_MEDIA = Media(
    placeholders={"image": (906,), "audio": (910,)},
    special_tokens={
        904: "<img>",
        905: "</img>",
        906: "<image>",
        907: "<video>",
        908: "<so_start>",
        909: "<so_end>",
        910: "<so_embedding>",
    },
)

_STEP_MEDIA = Media(
    placeholders={"image": (909,)},
    special_tokens={
        904: "<im_start>",
        905: "<im_end>",
        906: "<patch_start>",
        907: "<patch_end>",
        908: "<patch_newline>",
        909: "<im_patch>",
    },
)

MULTIMODAL_MODELS = (
    TinyModel(
        "qwen3.5-vl",
        "GatedDeltaNet (recurrent and convolution), full KV, encoder outputs of images and videos",
        "qwen3.5-vl.json",
        34,
        WITH_TOKENIZER
        | DELTA_STATE
        | {"max_model_len": 2048, "max_num_batched_tokens": 768, "enable_prefix_caching": True},
        media=_QWEN_MEDIA,
    ),
    TinyModel(
        "qwen3.5-vl-mtp",
        "GatedDeltaNet (one running state, one per draft token), full KV, draft KV of a native head, encoder outputs",
        "qwen3.5-vl.json",
        27,
        WITH_TOKENIZER
        | DELTA_STATE
        | {"max_model_len": 2048, "max_num_batched_tokens": 768, "enable_prefix_caching": False},
        draft=Draft("mtp", 2),
        media=_QWEN_IMAGES,
        refused=(NO_PRE_COPY,),
    ),
    TinyModel(
        "lfm2-vl",
        "short convolution, full KV, encoder outputs",
        "lfm2-vl.json",
        30,
        SHORT | {"enable_prefix_caching": True},
        media=_LFM2_MEDIA,
    ),
    TinyModel("gemma3-mm", "sliding and full KV, encoder outputs", "gemma3-mm.json", 34, SHORT, media=_GEMMA_MEDIA),
    TinyModel(
        "mimo-omni",
        "sliding and full KV of different heads, encoder outputs",
        "mimo-omni.json",
        34,
        SHORT | {"trust_remote_code": True},
        media=_MIMO_MEDIA,
    ),
    TinyModel(
        "nemotron-omni",
        "Mamba2 (one running state), full KV, encoder outputs of images and sounds",
        "nemotron-omni.json",
        12,
        WITH_TOKENIZER
        | {
            "max_model_len": 2048,
            "max_num_batched_tokens": 512,
            "enable_prefix_caching": False,
            "trust_remote_code": True,
            **MAMBA_STATE,
        },
        media=_NEMOTRON_MEDIA,
        configuration_module="configuration_nemotron_omni",
    ),
    TinyModel(
        "step-3.7",
        "sliding and full KV of different heads, encoder outputs (fewer than their placeholders)",
        "step-3.7.json",
        34,
        SHORT
        | {
            "trust_remote_code": True,
            "worker_extension_cls": "vstate.tracer.models.step.ContiguousProjectorInput",
        },
        media=_STEP_MEDIA,
        configuration_module="configuration_step",
    ),
)
