"""Files of the models that are built locally: those of the package, and what a model needs beside its configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TypeVar

from vstate.schemas.errors import VstateError
from vstate.tracer.models.model import Media
from vstate.tracer.models.tokenizer import write_tokenizer

ModelT = TypeVar("ModelT")


def named(models: Mapping[str, ModelT], kind: str, name: str) -> ModelT:
    """Return the model ``kind/name``.

    Raises:
        VstateError: There is none.
    """
    try:
        return models[name]
    except KeyError:
        known = ", ".join(f"{kind}/{n}" for n in models)
        raise VstateError(f"unknown model {kind}/{name}; there are {known}") from None


def package_text(folder: str, name: str) -> str:
    """Return a file of the package."""
    return (resources.files("vstate.tracer.models") / folder / name).read_text(encoding="utf-8")


def write_beside(folder: Path, configuration_module: str, media: Media | None, vocabulary: int) -> None:
    """Write what a model needs beside its configuration.

    Args:
        folder: The model's folder.
        configuration_module: Module of `remote/` with the configuration class; empty for none.
        media: How the model takes media, if it does.
        vocabulary: Token ids are below it.
    """
    if configuration_module:
        module = f"{configuration_module}.py"
        (folder / module).write_text(package_text("remote", module), encoding="utf-8")
    if media:
        write_tokenizer(folder, vocabulary, media.special_tokens, media.token_names)
        for name, value in media.files.items():
            (folder / name).write_text(json.dumps(value), encoding="utf-8")
