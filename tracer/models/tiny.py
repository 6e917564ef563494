"""The tiny models: every state class in a model small enough for a real forward on a CPU.

A tiny model is a configuration file in `tiny/` and the engine settings under which vLLM
0.32 runs it on a CPU. Weights are random and token ids are given, so that no hub is
needed; what a model needs beside its configuration is built here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vstate.schemas.errors import VstateError
from vstate.tracer.models.files import named, package_text, write_beside
from vstate.tracer.models.model import TinyModel
from vstate.tracer.models.multimodal import MULTIMODAL_MODELS
from vstate.tracer.models.text import TEXT_MODELS

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
    return named(TINY_MODELS, "tiny", name)


def build(model: TinyModel, folder: Path) -> Path:
    """Write the model's files into ``folder``, which must exist, and return it."""
    config = _copy_config(model.config, folder)
    if model.draft and model.draft.config:
        (folder / DRAFT_FOLDER).mkdir()
        _copy_config(model.draft.config, folder / DRAFT_FOLDER)
    vocabulary = config.get("text_config", config)["vocab_size"]
    write_beside(folder, model.configuration_module, model.media, vocabulary)
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
    if draft := model.draft:
        place = {"model": str(folder / DRAFT_FOLDER)} if draft.config else {}
        arguments["speculative_config"] = draft.speculative_config | place
    arguments |= settings
    for setting, value, why in model.refused:
        if arguments.get(setting) == value:
            raise VstateError(f"tiny/{model.name} with {setting}={value}: {why}")
    return arguments


def _copy_config(name: str, folder: Path) -> dict[str, Any]:
    text = package_text("tiny", name)
    (folder / "config.json").write_text(text, encoding="utf-8")
    config: dict[str, Any] = json.loads(text)
    return config
