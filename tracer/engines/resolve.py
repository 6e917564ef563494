"""Finds the model that a run names, and the arguments that its engine takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vstate.schemas.errors import VstateError
from vstate.schemas.manifests import ModelOrigin
from vstate.schemas.workload import MediaKind
from vstate.tracer.engines.drafting import drafting_arguments
from vstate.tracer.engines.request import RunRequest, WorkerSettings
from vstate.tracer.engines.step_time import DEVICES, Device, StepTime, find_device, of_device, read_step_time
from vstate.tracer.models.full_models import build_full, full_arguments, full_model
from vstate.tracer.models.model import Media
from vstate.tracer.models.tiny import build, engine_arguments, tiny_model

DEFAULT_DEVICE = "h100"
"""Whose time is modelled where nothing names a device."""
SETTINGS_KEY = "vstate_scheduler_engine"
"""Where the worker's settings stand in vLLM's ``additional_config``, which reaches every worker."""


@dataclass(frozen=True)
class ResolvedModel:
    """A model that an engine can load.

    Attributes:
        location: Folder or id that vLLM loads.
        arguments: Arguments of vLLM's `EngineArgs`.
        shown_arguments: The same for the manifest, without scratch folders.
        media: How the model takes media, as far as that is known.
        origin: Where a true-size configuration comes from.
        device: Device that the deployment assumes; None for none.
        step_time: How long a step is taken to last; None for an engine with a real forward.
    """

    location: str
    arguments: dict[str, Any]
    shown_arguments: dict[str, Any]
    media: Media | None = None
    origin: ModelOrigin | None = None
    device: Device | None = None
    step_time: StepTime | None = None

    @property
    def media_kinds(self) -> tuple[MediaKind, ...]:
        """Kinds of media that the model takes."""
        return tuple(self.media.placeholders) if self.media else ()


def resolve_model(request: RunRequest, scratch: Path) -> ResolvedModel:
    """Find the model, and build it in ``scratch`` where it is built locally.

    Raises:
        VstateError: There is no such model, or this engine cannot run it.
    """
    kind, _, name = request.model.partition("/")
    if kind == "full" and name:
        found = _full(request, name, scratch)
    elif kind == "tiny" and name:
        found = _tiny(request, name, scratch)
    else:
        found = _elsewhere(request)
    return _for_scheduler(request, found) if request.engine == "scheduler" else found


def _full(request: RunRequest, name: str, scratch: Path) -> ResolvedModel:
    model = full_model(name)
    if request.engine != "scheduler":
        raise VstateError(f"{request.model} has no weights; run it with --engine scheduler")
    deployment = model.deployment
    settings = {"tensor_parallel_size": deployment.tensor_parallel_size} | request.settings
    settings |= drafting_arguments(request.drafting, scratch)
    folder = build_full(model, scratch)
    return ResolvedModel(
        location=str(folder),
        arguments={"served_model_name": request.model} | full_arguments(model, folder, settings),
        shown_arguments=full_arguments(model, Path(request.model), settings),
        media=model.media,
        origin=model.origin,
        device=find_device(deployment.device),
    )


def _tiny(request: RunRequest, name: str, scratch: Path) -> ResolvedModel:
    tiny = tiny_model(name)
    pool = {"num_gpu_blocks_override": tiny.smoke_blocks} if request.workload == "smoke" else {}
    settings = pool | request.settings | drafting_arguments(request.drafting, scratch)
    folder = build(tiny, scratch)
    return ResolvedModel(
        location=str(folder),
        arguments={"served_model_name": request.model} | engine_arguments(tiny, folder, settings),
        shown_arguments=engine_arguments(tiny, Path(request.model), settings),
        media=tiny.media,
    )


def _elsewhere(request: RunRequest) -> ResolvedModel:
    check_location(request.model, "tiny/NAME, full/NAME, a model folder, or a hub id")
    settings = request.settings | drafting_arguments(request.drafting, Path(request.model))
    return ResolvedModel(request.model, dict(settings), dict(settings))


def check_location(model: str, known: str) -> None:
    """Check that a model is a folder with a configuration, or may be a hub id.

    Args:
        model: What was given.
        known: What may be given, for the error.

    Raises:
        VstateError: It is neither.
    """
    path = Path(model)
    if path.is_dir() and not (path / "config.json").exists():
        raise VstateError(f"{path} holds no config.json, so it is not a model folder")
    if not path.exists() and (model.startswith((".", "/")) or model.count("/") != 1):
        raise VstateError(f"unknown model {model}: give {known}")


def _for_scheduler(request: RunRequest, model: ResolvedModel) -> ResolvedModel:
    """Add what the scheduler engine's worker is told, and the evidence of it."""
    options = request.scheduler
    device = find_device(options.device) if options.device else model.device
    step_time = read_step_time(options.step_time) if options.step_time else of_device(device or DEVICES[DEFAULT_DEVICE])
    settings: dict[str, Any] = {}
    if options.tensor_parallel_size:
        settings["tensor_parallel_size"] = options.tensor_parallel_size
    arguments = model.arguments | settings
    sized = any(arguments.get(name) for name in ("num_gpu_blocks_override", "kv_cache_memory_bytes"))
    if not sized and device is None:
        raise VstateError(
            "nothing says how large the pool is; give --device, or --set num_gpu_blocks_override=N, "
            "or --set kv_cache_memory_bytes=N"
        )
    told = WorkerSettings(
        seed=request.seed,
        acceptance=options.acceptance,
        device_memory_bytes=device.memory_bytes if device and not sized else 0,
        step_time=step_time,
    ).model_dump(mode="json")
    return replace(
        model,
        arguments=arguments | {"additional_config": {SETTINGS_KEY: told}},
        shown_arguments=model.shown_arguments | settings | {"scheduler_engine": told},
        device=device,
        step_time=step_time,
    )
