"""The tiny text models."""

from __future__ import annotations

from typing import Any

from vstate.tracer.models.model import Draft, TinyModel

SHORT: dict[str, Any] = {"max_model_len": 1024, "max_num_batched_tokens": 256}
"""Settings of models whose blocks are 128 tokens."""
# vLLM chooses the type of a recurrent state by the CPU's instructions, and the block size follows from its bytes.
# Said here, a model has the same geometry on every machine.
DELTA_STATE: dict[str, Any] = {"mamba_ssm_cache_dtype": "bfloat16"}
MAMBA_STATE: dict[str, Any] = {"mamba_ssm_cache_dtype": "float32"}
NO_PRE_COPY = (
    "enable_prefix_caching",
    True,
    "a GatedDeltaNet model that drafts needs prefix caching off: the copy of states before a step (`align` mode) "
    "has no CPU kernel in vLLM 0.32",
)

TEXT_MODELS = (
    TinyModel("qwen3", "full KV", "qwen3.json", 14, SHORT),
    TinyModel("gemma3", "sliding and full KV", "gemma3.json", 34, SHORT),
    TinyModel("gpt-oss", "sliding and full KV with attention sinks", "gpt-oss.json", 26, SHORT),
    TinyModel("mimo-v2", "sliding and full KV of different heads", "mimo-v2.json", 34, SHORT),
    TinyModel(
        "mimo-v2-mtp",
        "sliding and full KV, draft KV of a native head",
        "mimo-v2.json",
        38,
        SHORT,
        draft=Draft("mtp", 1),
    ),
    TinyModel(
        "lfm2-moe",
        "short convolution and full KV",
        "lfm2-moe.json",
        29,
        SHORT | {"enable_prefix_caching": True},
    ),
    TinyModel(
        "qwen3-next",
        "GatedDeltaNet (recurrent and convolution) and full KV",
        "qwen3-next.json",
        34,
        DELTA_STATE | {"max_model_len": 2048, "max_num_batched_tokens": 768, "enable_prefix_caching": True},
    ),
    TinyModel(
        "qwen3.5-mtp",
        "GatedDeltaNet (one running state, one per draft token), full KV, draft KV of a native head",
        "qwen3.5.json",
        27,
        DELTA_STATE | {"max_model_len": 2048, "max_num_batched_tokens": 768, "enable_prefix_caching": False},
        draft=Draft("mtp", 2),
        refused=(NO_PRE_COPY,),
    ),
    TinyModel(
        "nemotron-h",
        "Mamba2 (recurrent and convolution) and full KV",
        "nemotron-h.json",
        22,
        # A chunk must not be longer than a block: vLLM 0.32's CPU kernel returns too few states per chunk.
        MAMBA_STATE | {"max_model_len": 2048, "max_num_batched_tokens": 256, "enable_prefix_caching": True},
    ),
    TinyModel(
        "nemotron-h-nocache",
        "Mamba2 (one running state) and full KV",
        "nemotron-h.json",
        12,
        MAMBA_STATE | {"max_model_len": 2048, "max_num_batched_tokens": 512, "enable_prefix_caching": False},
    ),
    TinyModel(
        "qwen3-draft",
        "full KV, draft KV of a model of its own in the target's group",
        "qwen3.json",
        9,
        SHORT,
        draft=Draft("draft_model", 3, "qwen3-draft.json"),
    ),
    TinyModel(
        "qwen3-eagle3",
        "full KV, draft KV of an EAGLE3 head",
        "qwen3-8-layers.json",
        14,
        SHORT,
        draft=Draft("eagle3", 3, "qwen3-eagle3.json"),
    ),
    TinyModel(
        "qwen3-ngram",
        "full KV, drafts without a state",
        "qwen3.json",
        14,
        SHORT,
        draft=Draft("ngram", 3, arguments={"prompt_lookup_max": 3, "prompt_lookup_min": 2}),
    ),
)
