"""How long a step would take on a device: a linear model, whose error is unknown until it is fitted on hardware.

    seconds = fixed + flops x per_flop + bytes x per_byte

`flops` and `bytes` are what one rank computes and reads in the step: weights (of a mixture of experts those of
the experts that the step's tokens are expected to reach), KV and state, encoder. Communication between
ranks, launches of kernels and the host's own time are in `fixed`. Adding both terms instead of taking the larger
one makes it linear, so that it can be fitted by least squares, and errs on the slow side.

Everything here is modelled; the figures of devices are those of their data sheets, the efficiencies are assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError

from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import GIB

Floats = npt.NDArray[np.float64]


class Device(BaseModel):
    """An accelerator, by its data sheet.

    Attributes:
        name: Its name.
        memory_bytes: Its memory.
        flops_per_second: Dense bf16 operations.
        bytes_per_second: Memory bandwidth.
        source: Where the figures stand.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    memory_bytes: int
    flops_per_second: float
    bytes_per_second: float
    source: str


DEVICES = {
    device.name: device
    for device in (
        Device(
            name="h100",
            memory_bytes=80 * GIB,
            flops_per_second=989e12,
            bytes_per_second=3.35e12,
            source="NVIDIA H100 SXM data sheet (bf16 without sparsity)",
        ),
        Device(
            name="h200",
            memory_bytes=141 * 10**9,
            flops_per_second=989e12,
            bytes_per_second=4.8e12,
            source="NVIDIA H200 SXM data sheet (bf16 without sparsity)",
        ),
        Device(
            name="b200",
            memory_bytes=180 * 10**9,
            flops_per_second=2250e12,
            bytes_per_second=8e12,
            source="NVIDIA DGX B200 data sheet (1,440 GB, 64 TB/s and 36 PFLOP/s of bf16 with sparsity over 8 GPUs)",
        ),
    )
}
COMPUTE_EFFICIENCY = 0.5
MEMORY_EFFICIENCY = 0.7
FIXED_SECONDS = 0.004
"""Assumed shares of the data sheet that a step reaches, and the assumed rest of it."""


def find_device(name: str) -> Device:
    """Return a device by its name in any case.

    Raises:
        VstateError: There is none.
    """
    try:
        return DEVICES[name.lower()]
    except KeyError:
        raise VstateError(f"unknown device {name}; there are {', '.join(DEVICES)}") from None


class StepTime(BaseModel):
    """The three coefficients.

    Attributes:
        fixed_seconds: Of each step.
        seconds_per_flop: Of each operation of one rank.
        seconds_per_byte: Of each byte that one rank reads.
        evidence: ``assumed`` from a data sheet, or ``fitted`` to runs.
        source: Device or runs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fixed_seconds: float
    seconds_per_flop: float
    seconds_per_byte: float
    evidence: Literal["assumed", "fitted"]
    source: str

    def seconds(self, flops: float, read_bytes: float) -> float:
        """Modelled duration of a step."""
        return self.fixed_seconds + flops * self.seconds_per_flop + read_bytes * self.seconds_per_byte


def of_device(device: Device) -> StepTime:
    """Return the model of a device by its data sheet and the assumed efficiencies."""
    return StepTime(
        fixed_seconds=FIXED_SECONDS,
        seconds_per_flop=1 / (device.flops_per_second * COMPUTE_EFFICIENCY),
        seconds_per_byte=1 / (device.bytes_per_second * MEMORY_EFFICIENCY),
        evidence="assumed",
        source=f"{device.source}; {COMPUTE_EFFICIENCY:.0%} of its operations, {MEMORY_EFFICIENCY:.0%} of its bandwidth "
        f"and {FIXED_SECONDS * 1000:.0f} ms a step are assumed",
    )


def read_step_time(path: Path) -> StepTime:
    """Read coefficients that `vstate trace fit` wrote.

    Raises:
        VstateError: The file is absent or not of that form.
    """
    try:
        return StepTime.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise VstateError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise VstateError(f"{path} is no step-time model; make one with vstate trace fit") from error


def fit(flops: Sequence[float], read_bytes: Sequence[float], seconds: Sequence[float], source: str) -> StepTime:
    """Fit the coefficients to steps that were measured, by least squares under the constraint that none is negative.

    Args:
        flops: Operations of each step.
        read_bytes: Bytes read in each step.
        seconds: Duration of each step.
        source: What was measured.

    Raises:
        VstateError: There are fewer steps than it takes.
    """
    features = np.column_stack([np.ones(len(seconds)), flops, read_bytes])
    target = np.asarray(seconds, dtype=np.float64)
    if len(target) < 3 * features.shape[1]:
        raise VstateError(f"{len(target)} steps are too few to fit a step-time model; give longer runs")
    fixed, per_flop, per_byte = _least_squares(features, target)
    return StepTime(
        fixed_seconds=fixed, seconds_per_flop=per_flop, seconds_per_byte=per_byte, evidence="fitted", source=source
    )


def _least_squares(features: Floats, target: Floats) -> Floats:
    """Least squares without negative coefficients: the best of all subsets of columns, of which there are few."""
    scale = np.maximum(np.abs(features).max(axis=0), 1e-300)
    best, best_error = np.zeros(features.shape[1]), float(target @ target)
    for subset in range(1, 1 << features.shape[1]):
        columns = [column for column in range(features.shape[1]) if subset >> column & 1]
        found, *_ = np.linalg.lstsq(features[:, columns] / scale[columns], target, rcond=None)
        error = float(
            ((features[:, columns] / scale[columns]) @ found - target)
            @ ((features[:, columns] / scale[columns]) @ found - target)
        )
        if (found >= 0).all() and error < best_error:
            best, best_error = np.zeros(features.shape[1]), error
            best[columns] = found
    result: Floats = best / scale
    return result
