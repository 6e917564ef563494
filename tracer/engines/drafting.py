"""Reads how a run drafts: ``mtp:2``, ``ngram:3``, ``draft:MODEL:3``, ``eagle3:MODEL:3`` or ``none``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vstate.schemas.errors import VstateError
from vstate.tracer.models.tiny import build, tiny_model

WITH_A_MODEL = {"draft": "draft_model", "eagle3": "eagle3"}
NGRAM: dict[str, Any] = {"prompt_lookup_max": 3, "prompt_lookup_min": 2}
FORM = "mtp:N, ngram:N, draft:MODEL:N, eagle3:MODEL:N or none"


def drafting_arguments(text: str, scratch: Path) -> dict[str, Any]:
    """Return the engine arguments for ``--spec``.

    Args:
        text: The option; empty for what the model itself does.
        scratch: Folder in which a draft that is built locally may be built.

    Raises:
        VstateError: It is not of one of the forms.
    """
    if not text:
        return {}
    if text == "none":
        return {"speculative_config": None}
    method, _, rest = text.partition(":")
    model, _, count = rest.rpartition(":")
    if not count.isdigit() or int(count) < 1 or bool(model) != (method in WITH_A_MODEL):
        raise VstateError(f"--spec {text!r} is none of {FORM}")
    config: dict[str, Any] = {"method": WITH_A_MODEL.get(method, method), "num_speculative_tokens": int(count)}
    if method == "ngram":
        config |= NGRAM
    elif method in WITH_A_MODEL:
        config["model"] = _draft_location(model, scratch)
    elif method != "mtp":
        raise VstateError(f"--spec {text!r} is none of {FORM}")
    return {"speculative_config": config}


def _draft_location(model: str, scratch: Path) -> str:
    kind, _, name = model.partition("/")
    if kind != "tiny" or not name:
        return model
    folder = scratch / "spec"
    folder.mkdir()
    return str(build(tiny_model(name), folder))
