"""The tiny models: every state class in a model small enough for a real forward on a CPU.

A tiny model is a configuration file in `tiny/` and the engine settings under which vLLM
0.32 runs it on a CPU. Weights are random and token ids are given, so that no hub is
needed; what a model needs beside its configuration is built here.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from vstate.schemas.errors import VstateError
from vstate.tracer.models.model import TinyModel
from vstate.tracer.models.multimodal import MULTIMODAL_MODELS
from vstate.tracer.models.text import TEXT_MODELS
from vstate.tracer.models.tokenizer import write_tokenizer

TINY_MODELS: dict[str, TinyModel] = {model.name: model for model in TEXT_MODELS + MULTIMODAL_MODELS}

COMMON_ARGUMENTS: dict[str, Any] = {
    "load_format": "dummy",
    "enforce_eager": True,
    "dtype": "bfloat16",
    "skip_tokenizer_init": True,
    "max_num_seqs": 8,
}
"""Engine arguments of every tiny model on the full engine."""
DRAFT_FOLDER = "draft"


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
    """Write the model's files into ``folder``, which must exist, and return it."""
    config = _copy_config(model.config, folder)
    if model.draft and model.draft.config:
        (folder / DRAFT_FOLDER).mkdir()
        _copy_config(model.draft.config, folder / DRAFT_FOLDER)
    if model.configuration_module:
        module = f"{model.configuration_module}.py"
        (folder / module).write_text(_package_text("remote", module), encoding="utf-8")
    if media := model.media:
        vocabulary = config.get("text_config", config)["vocab_size"]
        write_tokenizer(folder, vocabulary, media.special_tokens, media.token_names)
        for name, value in media.files.items():
            (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return folder


def engine_arguments(model: TinyModel, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Return all engine arguments of a model that was built in ``folder``.

    Args:
        model: The model.
        folder: Where it was built.
        settings: What the caller sets; it wins.

    Raises:
        VstateError: The installed engine cannot run the model with these settings.
    """
    arguments = COMMON_ARGUMENTS | model.arguments
    if model.draft:
        arguments["speculative_config"] = _speculative_config(model, folder)
    arguments |= settings
    for setting, value, why in model.refused:
        if arguments.get(setting) == value:
            raise VstateError(f"tiny/{model.name} with {setting}={value}: {why}")
    return arguments


def _speculative_config(model: TinyModel, folder: Path) -> dict[str, Any]:
    draft = model.draft
    assert draft is not None
    config = {"method": draft.method, "num_speculative_tokens": draft.tokens} | draft.arguments
    return config | {"model": str(folder / DRAFT_FOLDER)} if draft.config else config


def _copy_config(name: str, folder: Path) -> dict[str, Any]:
    text = _package_text("tiny", name)
    (folder / "config.json").write_text(text, encoding="utf-8")
    config: dict[str, Any] = json.loads(text)
    return config


def _package_text(folder: str, name: str) -> str:
    return (resources.files("vstate.tracer.models") / folder / name).read_text(encoding="utf-8")
