"""The model that is asked about: which it is, and how each engine is to run it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vstate.candidate.differences import nearest_model
from vstate.candidate.report import Revision
from vstate.candidate.revision import folder_revision, quantization, read_config
from vstate.candidate.weights import folder_weights
from vstate.schemas.errors import VstateError
from vstate.tracer.engines.request import EngineName, RunRequest, SchedulerOptions
from vstate.tracer.engines.resolve import DEFAULT_DEVICE
from vstate.tracer.engines.step_time import find_device
from vstate.tracer.models.full_model import configuration_digest
from vstate.tracer.models.full_models import COMMON_ARGUMENTS, full_model
from vstate.tracer.models.tiny import build, tiny_model

MEMORY_SHARE = 0.92
"""Share of a device's memory that vLLM 0.32 takes (`CacheConfig.gpu_memory_utilization`); said here so that what
the pool leaves of it is known to be weights."""


@dataclass(frozen=True)
class Question:
    """What `vstate candidate verify` is asked.

    Attributes:
        model: A folder, ``full/NAME`` or ``tiny/NAME``.
        workload: ``smoke`` or a JSONL file.
        device: Device of `step_time.DEVICES`; empty for the model's own, or an H100.
        tensor_parallel_size: Ranks that share the model; 0 for the model's own, or 1.
        trust_remote_code: Whether code that a folder brings may run.
    """

    model: str
    workload: str = "smoke"
    device: str = ""
    tensor_parallel_size: int = 0
    trust_remote_code: bool = False


@dataclass(frozen=True)
class Subject:
    """The model, and what the engines are told of it.

    Attributes:
        question: What was asked.
        revision: Which model it is.
        settings_of: Model whose engine arguments are taken; empty for none but common ones.
        scheduler_settings: Engine arguments of the scheduler engine.
        full_settings: Engine arguments of the full engine.
        brings_code: Whether the configuration names classes that lie in its own folder.
    """

    question: Question
    revision: Revision
    settings_of: str
    scheduler_settings: dict[str, Any]
    full_settings: dict[str, Any]
    brings_code: bool = False

    def scheduler_request(self, out: Path) -> RunRequest:
        """Return the run of the engine core without a forward."""
        question = self.question
        own = self.revision.kind != "folder"
        options = SchedulerOptions(
            device=question.device or ("" if own else DEFAULT_DEVICE),
            tensor_parallel_size=question.tensor_parallel_size,
        )
        return self._request(out, "scheduler", self.scheduler_settings, options)

    def full_request(self, out: Path) -> RunRequest:
        """Return the run with a real forward."""
        return self._request(out, "full", self.full_settings, SchedulerOptions())

    def _request(
        self, out: Path, engine: EngineName, settings: dict[str, Any], options: SchedulerOptions
    ) -> RunRequest:
        return RunRequest(
            model=self.question.model,
            workload=self.question.workload,
            out=out,
            seed=0,
            settings=settings,
            own_process=False,
            engine=engine,
            scheduler=options,
        )


def find_subject(question: Question) -> Subject:
    """Find the model and say which it is.

    Raises:
        VstateError: There is no such model, workload or device.
    """
    if question.workload != "smoke" and not Path(question.workload).is_file():
        raise VstateError(f"unknown workload {question.workload}: give smoke or a JSONL file")
    if question.device:
        find_device(question.device)
    kind, _, name = question.model.partition("/")
    if kind == "full" and name:
        return _full(question, name)
    if kind == "tiny" and name:
        return _tiny(question, name)
    return _folder(question, Path(question.model))


def _full(question: Question, name: str) -> Subject:
    model = full_model(name)
    revision = Revision(
        kind="full",
        architectures=tuple(model.config["architectures"]),
        configuration_digest=model.configuration_digest,
        quantization=quantization(model.config),
        origin=model.origin,
    )
    return Subject(question, revision, question.model, {"gpu_memory_utilization": MEMORY_SHARE}, {})


def _tiny(question: Question, name: str) -> Subject:
    model = tiny_model(name)
    with tempfile.TemporaryDirectory(prefix="vstate-candidate-") as scratch:
        config = read_config(build(model, Path(scratch)))
    revision = Revision(
        kind="tiny",
        architectures=tuple(config["architectures"]),
        configuration_digest=configuration_digest(config),
    )
    return Subject(question, revision, question.model, {}, {})


def _folder(question: Question, folder: Path) -> Subject:
    if not folder.exists():
        raise VstateError(f"{folder} does not exist; give a checkpoint's folder, full/NAME or tiny/NAME")
    config = read_config(folder)
    found = folder_revision(folder)
    nearest = nearest_model(config)
    revision = Revision(
        kind="folder",
        architectures=found.architectures,
        configuration_digest=found.configuration_digest,
        commit=found.commit,
        quantization=found.quantization,
        files=found.files,
        weights=folder_weights(folder),
        nearest=nearest,
    )
    trust = {"trust_remote_code": True} if question.trust_remote_code else {}
    ranks = {"tensor_parallel_size": question.tensor_parallel_size} if question.tensor_parallel_size else {}
    return Subject(
        question=question,
        revision=revision,
        settings_of=nearest.model if nearest else "",
        scheduler_settings=_without_weights(folder, nearest.model if nearest else "") | trust,
        full_settings=trust | ranks,
        brings_code="auto_map" in config and not question.trust_remote_code,
    )


def _without_weights(folder: Path, nearest: str) -> dict[str, Any]:
    """Return the engine arguments of a folder on the scheduler engine: those of the nearest true-size model."""
    settings = COMMON_ARGUMENTS | {"gpu_memory_utilization": MEMORY_SHARE}
    if not any(folder.glob("*token*")):
        settings["skip_tokenizer_init"] = True
    if nearest:
        model = full_model(nearest.removeprefix("full/"))
        # Trusting a folder's code is for whoever gives the folder to say.
        settings |= {name: value for name, value in model.arguments.items() if name != "trust_remote_code"}
        if model.draft:
            settings["speculative_config"] = model.draft.speculative_config
    return settings
