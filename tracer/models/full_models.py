"""The true-size models: published configurations, built locally, for engines that run no forward.

A configuration file and its evidence lie in `full/`. There are no weights: vLLM builds the
model on the meta device for its shapes (`meta_build.py`).
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from vstate.schemas.errors import VstateError
from vstate.tracer.models.full_catalogue import MODELS
from vstate.tracer.models.full_model import FullModel
from vstate.tracer.models.tokenizer import write_tokenizer

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
    try:
        return FULL_MODELS[name]
    except KeyError:
        known = ", ".join(f"full/{n}" for n in FULL_MODELS)
        raise VstateError(f"unknown model full/{name}; there are {known}") from None


def build_full(model: FullModel, folder: Path) -> Path:
    """Write the model's files into ``folder``, which must exist, and return it."""
    (folder / "config.json").write_text(model.config_text, encoding="utf-8")
    if model.configuration_module:
        module = f"{model.configuration_module}.py"
        text = (resources.files("vstate.tracer.models") / "remote" / module).read_text(encoding="utf-8")
        (folder / module).write_text(text, encoding="utf-8")
    if media := model.media:
        write_tokenizer(folder, model.text_config["vocab_size"], media.special_tokens, media.token_names)
        for name, value in media.files.items():
            (folder / name).write_text(json.dumps(value), encoding="utf-8")
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
    if draft := model.draft:
        config = {"method": draft.method, "num_speculative_tokens": draft.tokens}
        arguments["speculative_config"] = config | draft.arguments
    return arguments | model.arguments | settings
