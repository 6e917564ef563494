"""The true-size models by name. What their configurations say stands in `full/`."""

from __future__ import annotations

from typing import Any

from vstate.tracer.models.full_media import MIMO_MEDIA, OMNI_MEDIA, QWEN_MEDIA, STEP_MEDIA
from vstate.tracer.models.full_model import FullModel
from vstate.tracer.models.model import Draft

# vLLM chooses the type of a recurrent state by the CPU's instructions. Said here, as the checkpoint says it, a
# model has the geometry of its deployment on every machine.
FLOAT_STATE: dict[str, Any] = {"mamba_ssm_cache_dtype": "float32"}
BFLOAT_STATE: dict[str, Any] = {"mamba_ssm_cache_dtype": "bfloat16"}
REMOTE_CODE: dict[str, Any] = {"trust_remote_code": True}
ONE_TOKEN_MTP = Draft("mtp", 1)

MODELS = (
    FullModel(
        "step-3.7-flash",
        "sliding and full KV of different heads, sliding draft KV of three native layers, encoder outputs",
        REMOTE_CODE,
        draft=Draft("mtp", 3),
        media=STEP_MEDIA,
        configuration_module="configuration_step_mtp",
    ),
    FullModel(
        "mimo-v2.5",
        "sliding and full KV of different heads, sliding draft KV of a native layer, encoder outputs",
        REMOTE_CODE,
        draft=ONE_TOKEN_MTP,
        media=MIMO_MEDIA,
        configuration_module="configuration_mimo_v2",
    ),
    FullModel(
        "nemotron-3-nano-omni",
        "Mamba2 (recurrent and convolution), full KV, encoder outputs of images and sounds",
        REMOTE_CODE | BFLOAT_STATE,
        media=OMNI_MEDIA,
        configuration_module="configuration_nemotron_omni_hub",
    ),
    FullModel("lfm2.5-8b-a1b", "short convolution and full KV"),
    FullModel(
        "qwen3.6-35b-a3b",
        "GatedDeltaNet (recurrent and convolution), full KV, draft KV of a native head, encoder outputs",
        FLOAT_STATE,
        draft=ONE_TOKEN_MTP,
        media=QWEN_MEDIA,
    ),
    FullModel(
        "qwen3.6-27b",
        "GatedDeltaNet (recurrent and convolution), full KV, draft KV of a native head, encoder outputs",
        FLOAT_STATE,
        draft=ONE_TOKEN_MTP,
        media=QWEN_MEDIA,
    ),
    FullModel(
        "nemotron-3-ultra",
        "Mamba2 (recurrent and convolution), full KV, draft KV of a native head",
        FLOAT_STATE,
        draft=ONE_TOKEN_MTP,
    ),
    FullModel(
        "nemotron-3-super",
        "Mamba2 (recurrent and convolution), full KV, draft KV of a native head",
        FLOAT_STATE,
        draft=ONE_TOKEN_MTP,
    ),
    FullModel(
        "deepseek-v3.2",
        "latent KV and sparse index, draft KV of a native layer",
        draft=ONE_TOKEN_MTP,
    ),
)
