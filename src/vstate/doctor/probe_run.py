"""The probe's own process: runs the script on a traced engine, replays what was recorded, and compares.

Started by `probe.py` as ``python -m vstate.doctor.probe_run``.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vstate.doctor.books import Books, engine_books, first_difference, own_contradiction
from vstate.doctor.child import answer_parent
from vstate.doctor.fit import FitRequest
from vstate.doctor.fit_run import fit
from vstate.doctor.probe import OperationReport, OperationState, ProbeReport, ProbeRequest
from vstate.doctor.probe_engine import NUM_BLOCKS, ProbeEngine, make_scheduler, probe_config
from vstate.doctor.probe_script import OPERATIONS, Operation
from vstate.doctor.replay import Replay, recorded_events
from vstate.inventory.from_vllm import pools_from_scheduler
from vstate.schemas.errors import one_line
from vstate.tracer.anchors import wrappers_on
from vstate.tracer.hooks import EngineHooks
from vstate.tracer.recorder import ChunkQueue, Recorder
from vstate.tracer.settings import SECRET_BYTES
from vstate.tracer.wrapping import LOGGER
from vstate.tracer.writer import Writer


@dataclass(frozen=True)
class Mark:
    """The engine's own books after one call, and how many events had been recorded by then."""

    step: int
    seq: int
    books: Books
    contradiction: str


@dataclass
class Observation:
    """What happened while one operation ran."""

    operation: Operation
    marks: list[Mark] = field(default_factory=list)
    happened: bool = False
    absent: bool = False
    error: str = ""


class _Warnings(logging.Handler):
    """Keeps what the tracer says while it records."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())


class Recording:
    """The tracer's own hooks, recorder and writer on one scheduler."""

    def __init__(self, scheduler: Any, folder: Path, secret: bytes) -> None:
        """Record ``scheduler`` into ``folder`` from now on.

        Raises:
            Exception: A hook does not fit.
        """
        queue = ChunkQueue()
        self.recorder = Recorder(queue, pools=len(pools_from_scheduler(scheduler)))
        self._writer = Writer(folder, queue, secret, on_segment_full=lambda: None, on_failure=self._failed)
        self._writer.start()
        EngineHooks(scheduler, self.recorder, secret).install()

    def _failed(self, error: str) -> None:
        self.recorder.lose()
        LOGGER.warning("vstate: writing the trace failed: %s", error)

    def close(self) -> None:
        """Write everything that was recorded."""
        self.recorder.hand_over(time.monotonic_ns())
        self._writer.close()


def probe(_: ProbeRequest) -> ProbeReport:
    """Run all operations and report on each."""
    start = time.monotonic()
    found = fit(FitRequest())
    if not found.fits:
        return ProbeReport(fit=found, failure="not run, since vLLM does not fit")
    warnings = _Warnings()
    LOGGER.addHandler(warnings)
    secret = os.urandom(SECRET_BYTES)
    with tempfile.TemporaryDirectory(prefix="vstate-probe-") as scratch:
        try:
            config = probe_config(Path(scratch))
            scheduler = make_scheduler(config)
            wrapped = wrapped_on_instances(scheduler)
            recording = Recording(scheduler, Path(scratch), secret)
        except Exception as error:
            traceback.print_exc()
            return ProbeReport(fit=found, failure=f"the engine could not be made: {one_line(error)}")
        observations = observe(ProbeEngine(scheduler, config, lambda: None), recording.recorder, secret)
        recording.close()
        reports = compare(observations, Path(scratch), (NUM_BLOCKS,) * len(pools_from_scheduler(scheduler)))
    return ProbeReport(
        fit=found,
        operations=reports,
        lost_events=recording.recorder.lost_rows,
        warnings=tuple(dict.fromkeys(warnings.told)),
        wrapped=wrapped,
        seconds=round(time.monotonic() - start, 1),
    )


def observe(engine: ProbeEngine, recorder: Recorder, secret: bytes) -> list[Observation]:
    """Run the script and keep the engine's books at each boundary."""
    observations: list[Observation] = []

    def mark() -> None:
        books = engine_books(engine.scheduler, secret)
        marks = observations[-1].marks
        marks.append(Mark(recorder.step, recorder.seq, books, own_contradiction(engine.scheduler)))
        # What is lost later must not take this with it.
        recorder.hand_over(time.monotonic_ns())

    engine.boundary = mark
    pool = engine.scheduler.kv_cache_manager.block_pool
    for operation in OPERATIONS:
        observation = Observation(operation)
        observations.append(observation)
        if operation.needed and not hasattr(pool, operation.needed):
            observation.absent = True
            continue
        try:
            observation.happened = operation.run(engine)
        except Exception as error:
            traceback.print_exc()
            observation.error = f"{one_line(error)}{_where(error)}"
            # A scheduler that raised may not be stepped any further.
            break
    return observations


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def compare(observations: list[Observation], folder: Path, num_blocks: tuple[int, ...]) -> tuple[OperationReport, ...]:
    """Replay the recorded events and compare at each boundary; each operation is judged by itself."""
    replay = Replay(recorded_events(folder), num_blocks)
    reports = [_judge(observation, replay) for observation in observations]
    reached = {observation.operation.name for observation in observations}
    missed = [operation.name for operation in OPERATIONS if operation.name not in reached]
    reports += [OperationReport(name=name, state=OperationState.NOT_REACHED) for name in missed]
    return tuple(reports)


def _judge(observation: Observation, replay: Replay) -> OperationReport:
    name, boundaries = observation.operation.name, len(observation.marks)
    difference = ""
    for mark in observation.marks:
        replayed = replay.until(mark.seq)
        found = first_difference(replayed, mark.books) or mark.contradiction
        if found:
            difference = difference or f"after step {mark.step}, {found}"
            replay.correct(mark.books)
    if difference:
        return OperationReport(name=name, state=OperationState.DIFFERS, boundaries=boundaries, told=difference)
    if observation.error:
        return OperationReport(
            name=name, state=OperationState.FAILED, boundaries=boundaries, told=f"vLLM raised {observation.error}"
        )
    if observation.absent:
        return OperationReport(name=name, state=OperationState.ABSENT)
    state = OperationState.AGREES if observation.happened else OperationState.DID_NOT_HAPPEN
    return OperationReport(name=name, state=state, boundaries=boundaries)


def wrapped_on_instances(scheduler: Any) -> tuple[str, ...]:
    """Name the hooked methods that somebody else has replaced on the objects of this engine."""
    manager = scheduler.kv_cache_manager
    owners = [scheduler, manager, scheduler.encoder_cache_manager, *pools_from_scheduler(scheduler)]
    return tuple(dict.fromkeys(told for owner in owners for told in wrappers_on(owner)))


if __name__ == "__main__":
    answer_parent(ProbeRequest, probe)
