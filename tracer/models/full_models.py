"""The true-size models: published configurations, built locally, for engines that run no forward.

A configuration file and its evidence lie in `full/`. There are no weights: vLLM builds the
model on the meta device for its shapes (`meta_build.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vstate.tracer.models.files import named, write_beside
from vstate.tracer.models.full_catalogue import MODELS
from vstate.tracer.models.full_model import FullModel

FULL_MODELS: dict[str, FullModel] = {model.name: model for model in MODELS}

COMMON_ARGUMENTS: dict[str, Any] = {
    "load_format": "dummy",
    "enforce_eager": True,
    "dtype": "bfloat16",
    "max_num_seqs": 256,
    "max_num_batched_tokens": 8192,
    "enable_prefix_caching": True,
}
"""Engine arguments of every true-size model."""


def full_model(name: str) -> FullModel:
    """Return the true-size model called ``name``.

    Raises:
        VstateError: There is none.
    """
    return named(FULL_MODELS, "full", name)


def build_full(model: FullModel, folder: Path) -> Path:
    """Write the model's files into ``folder``, which must exist, and return it."""
    (folder / "config.json").write_text(model.config_text, encoding="utf-8")
    write_beside(folder, model.configuration_module, model.media, model.text_config["vocab_size"])
    return folder


def full_arguments(model: FullModel, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Return all engine arguments of a model that was built in ``folder``.

    Contexts are as long as the checkpoint takes them. Heads that draft are the checkpoint's
    own, so that no second folder is named.

    Args:
        model: The model.
        folder: Where it was built.
        settings: What the caller sets; it wins.
    """
    arguments: dict[str, Any] = COMMON_ARGUMENTS | {
        "max_model_len": model.text_config["max_position_embeddings"],
        # Without media there is nothing for a tokenizer to do: prompts are token ids.
        "skip_tokenizer_init": model.media is None,
    }
    if model.draft:
        arguments["speculative_config"] = model.draft.speculative_config
    return arguments | model.arguments | settings
