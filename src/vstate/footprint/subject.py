"""The model that is asked about: its configuration, and what an engine would be started with."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vstate.inventory.profiles import PlatformProfile, find_profile
from vstate.inventory.serving import ServingSettings, read_json
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import GIB
from vstate.tracer.engines.drafting import drafting_arguments
from vstate.tracer.engines.step_time import find_device
from vstate.tracer.models.full_models import build_full, full_arguments, full_model
from vstate.tracer.models.tiny import build, engine_arguments, tiny_model

DEFAULT_DEVICE = "h100"
TINY_POOL_BYTES = GIB
HUB_VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")


@dataclass(frozen=True)
class Question:
    """What `vstate inventory` is asked of a model.

    Attributes:
        model: ``tiny/NAME``, ``full/NAME``, a folder, or a model id in the local cache.
        settings: Engine arguments by name.
        drafting: As ``--spec`` of `vstate trace run`; empty for the model's own.
        profile: Name of the platform profile; empty for the model's own.
        device: Name of a device; empty for the model's own.
        memory_bytes: Memory for state; 0 to take the device's less the weights.
    """

    model: str
    settings: dict[str, Any]
    drafting: str = ""
    profile: str = ""
    device: str = ""
    memory_bytes: int = 0


@dataclass(frozen=True)
class Subject:
    """A model and its engine.

    Attributes:
        model: How it was named.
        config: Its configuration.
        settings: What the engine would be started with.
        profile: Where it would run.
        assumed: What was not said.
    """

    model: str
    config: dict[str, Any]
    settings: ServingSettings
    profile: PlatformProfile
    assumed: tuple[str, ...]

    @property
    def without_draft(self) -> Subject | None:
        """The same without the draft, None where there is none."""
        if self.settings.drafting is None:
            return None
        return replace(self, settings=self.settings.model_copy(update={"drafting": None}))


def find_subject(question: Question) -> Subject:
    """Find the model and its engine.

    Raises:
        VstateError: There is no such model, profile or device, or a setting is wrong.
    """
    with tempfile.TemporaryDirectory(prefix="vstate-inventory-") as scratch:
        kind, _, name = question.model.partition("/")
        place = Path(scratch)
        settings = question.settings | drafting_arguments(question.drafting, place)
        if kind == "tiny" and name:
            return _tiny(question, name, settings, place)
        if kind == "full" and name:
            return _full(question, name, settings, place)
        return _folder(question, settings)


def _tiny(question: Question, name: str, settings: dict[str, Any], place: Path) -> Subject:
    model = tiny_model(name)
    folder = build(model, place)
    arguments = engine_arguments(model, folder, settings)
    pool: tuple[str, ...] = ()
    if not (question.memory_bytes or question.device or _sized(settings)):
        arguments["kv_cache_memory_bytes"] = TINY_POOL_BYTES
        pool = ("a pool of 1 GiB; give --memory",)
    return _subject(question, folder, arguments, question.profile or "cpu", "", pool)


def _full(question: Question, name: str, settings: dict[str, Any], place: Path) -> Subject:
    model = full_model(name)
    deployment = model.deployment
    folder = build_full(model, place)
    arguments = full_arguments(model, folder, {"tensor_parallel_size": deployment.tensor_parallel_size} | settings)
    fields = [row.path for row in model.evidence.fields if row.status == "assumed"]
    ranks = arguments["tensor_parallel_size"]
    assumed = [f"fields without a source: {', '.join(fields)}"] if fields else []
    assumed.append(f"deployment: {ranks} x {question.device or deployment.device}")
    return _subject(question, folder, arguments, question.profile or "cuda-hopper", deployment.device, tuple(assumed))


def _folder(question: Question, settings: dict[str, Any]) -> Subject:
    folder = _locate(question.model)
    return _subject(question, folder, settings, question.profile or "cuda-hopper", DEFAULT_DEVICE, ())


def _subject(
    question: Question, folder: Path, arguments: dict[str, Any], profile: str, device: str, assumed: tuple[str, ...]
) -> Subject:
    if question.memory_bytes:
        arguments = arguments | {"kv_cache_memory_bytes": question.memory_bytes}
    elif not _sized(arguments):
        found = find_device(question.device or device)
        arguments = arguments | {"device_memory_bytes": found.memory_bytes}
        if not question.device and device == DEFAULT_DEVICE and not assumed:
            assumed = (f"device: {device}; give --device or --memory",)
        assumed += ("memory: the device's share for vLLM less the weights; nothing is taken off for activations",)
    config = read_json(folder / "config.json")
    if not isinstance(config, dict):
        raise VstateError(f"{folder / 'config.json'} is no configuration; give a model's folder")
    settings = ServingSettings.from_arguments({"served_model_name": question.model} | arguments, folder)
    return Subject(question.model, config, settings, find_profile(profile), assumed)


def _sized(arguments: dict[str, Any]) -> bool:
    return any(arguments.get(name) for name in ("num_gpu_blocks_override", "kv_cache_memory_bytes"))


def _locate(model: str) -> Path:
    """Find a folder, or a model id in the cache of the hub, newest revision first."""
    folder = Path(model)
    if folder.is_dir():
        if not (folder / "config.json").exists():
            raise VstateError(f"{folder} holds no config.json, so it is not a model folder")
        return folder
    if model.count("/") == 1 and not model.startswith((".", "/")):
        snapshots = hub_cache() / f"models--{model.replace('/', '--')}" / "snapshots"
        found = sorted(snapshots.glob("*/config.json"), key=lambda path: path.stat().st_mtime)
        if found:
            return found[-1].parent
        raise VstateError(f"{model} is not in the local cache {hub_cache()}; fetch it, or give its folder")
    raise VstateError(f"unknown model {model}: give tiny/NAME, full/NAME, a model folder, or a cached model id")


def hub_cache() -> Path:
    """Return the folder in which the hub's library keeps models."""
    for variable in HUB_VARIABLES:
        if os.environ.get(variable):
            return Path(os.environ[variable])
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    return Path(home) / "hub"
