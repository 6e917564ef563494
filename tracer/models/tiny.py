"""The tiny models: every state class in a model small enough for a real forward on a CPU.

A tiny model is a configuration file in `tiny/` and the engine settings under which vLLM
0.32 runs it on a CPU. Weights are random and token ids are given, so that neither a hub
nor a tokenizer is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from vstate.schemas.errors import VstateError


@dataclass(frozen=True)
class TinyModel:
    """A model that is built locally.

    Attributes:
        name: Name after `tiny/`.
        states: What state it keeps, for listings.
        config: Configuration file in the package.
        smoke_blocks: Blocks of the pool that `smoke` overflows.
        arguments: Engine arguments on top of the common ones.
    """

    name: str
    states: str
    config: str
    smoke_blocks: int
    arguments: dict[str, Any] = field(default_factory=dict)


_TINY = (
    TinyModel("qwen3", "full KV", "qwen3.json", 14, {"max_model_len": 1024, "max_num_batched_tokens": 256}),
    TinyModel(
        "gemma3", "sliding and full KV", "gemma3.json", 34, {"max_model_len": 1024, "max_num_batched_tokens": 256}
    ),
    TinyModel(
        "lfm2-moe",
        "short convolution and full KV",
        "lfm2-moe.json",
        30,
        {"max_model_len": 1024, "max_num_batched_tokens": 256, "enable_prefix_caching": True},
    ),
    TinyModel(
        "qwen3-next",
        "GatedDeltaNet (recurrent and convolution) and full KV",
        "qwen3-next.json",
        34,
        {"max_model_len": 8192, "max_num_batched_tokens": 4352, "enable_prefix_caching": True},
    ),
)

TINY_MODELS: dict[str, TinyModel] = {model.name: model for model in _TINY}

COMMON_ARGUMENTS: dict[str, Any] = {
    "load_format": "dummy",
    "enforce_eager": True,
    "dtype": "bfloat16",
    "skip_tokenizer_init": True,
    "max_num_seqs": 8,
}
"""Engine arguments of every tiny model on the full engine."""


def tiny_model(name: str) -> TinyModel:
    """Return the tiny model called ``name``.

    Raises:
        VstateError: There is none.
    """
    try:
        return TINY_MODELS[name]
    except KeyError:
        known = ", ".join(f"tiny/{n}" for n in TINY_MODELS)
        raise VstateError(f"unknown model tiny/{name}; there are {known}") from None


def build(model: TinyModel, folder: Path) -> Path:
    """Write the model's configuration into ``folder``, which must exist, and return it."""
    text = (resources.files("vstate.tracer.models") / "tiny" / model.config).read_text(encoding="utf-8")
    (folder / "config.json").write_text(text, encoding="utf-8")
    return folder
