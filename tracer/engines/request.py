"""What a person asked `vstate trace run` for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from vstate.tracer.engines.step_time import StepTime

EngineName = Literal["full", "scheduler"]

ACCEPTANCE = (0.8, 0.6, 0.5)
"""Assumed chance that a draft token is accepted if those before it were, by its position; the last holds on."""


@dataclass(frozen=True)
class SchedulerOptions:
    """What only the scheduler engine takes.

    Attributes:
        device: Name of a device of `step_time.DEVICES`; empty for the model's own or none.
        tensor_parallel_size: Ranks that share the model; 0 for the model's own.
        acceptance: Chance of each draft position.
        step_time: File of a fitted step-time model; None for the device's data sheet.
    """

    device: str = ""
    tensor_parallel_size: int = 0
    acceptance: tuple[float, ...] = ACCEPTANCE
    step_time: Path | None = None


class WorkerSettings(BaseModel):
    """What the worker of the scheduler engine is told.

    Attributes:
        seed: Of tokens and acceptance.
        acceptance: For each draft position the chance that it is accepted if all before it were.
        device_memory_bytes: Memory of one device; 0 where the pool's size is given in another way.
        step_time: How long a step takes.
    """

    seed: int
    acceptance: tuple[float, ...]
    device_memory_bytes: int
    step_time: StepTime


@dataclass(frozen=True)
class RunRequest:
    """A run to make.

    Attributes:
        model: ``tiny/NAME``, ``full/NAME``, a folder, or a model id.
        workload: ``smoke`` or a JSONL file.
        out: Folder of the run; must not exist.
        seed: Seed of weights, prompts and hashing.
        settings: Engine arguments that override the model's own.
        own_process: Whether the engine core gets a process of its own, as a server's does.
        max_disk_bytes: Bytes each process may keep; 0 for no limit.
        engine: Which engine runs.
        drafting: How to draft, as in ``mtp:2``; ``none`` for not at all, empty for the model's own way.
        skip_too_long: Leave out requests that do not fit instead of refusing the workload.
        scheduler: Options of the scheduler engine.
    """

    model: str
    workload: str
    out: Path
    seed: int
    settings: dict[str, Any]
    own_process: bool
    max_disk_bytes: int = 0
    engine: EngineName = "full"
    drafting: str = ""
    skip_too_long: bool = False
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)
