"""The frame of an engine's own process: its launcher's pipe, its messages, and its end.

Started by `launch.py` as ``python -m MODULE JOB``. The launcher's pipe is standard output; what vLLM
prints goes to standard error, which is the run's `engine.log`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from vstate.schemas.errors import VstateError, one_line
from vstate.schemas.workload import WorkloadRequest, iter_workload
from vstate.tracer.engines.driver import Driven, EnginePort, check_fit, drive
from vstate.tracer.engines.job import EngineJob, EngineMessage
from vstate.tracer.workloads.prompts import PromptSource

TOLD_EVERY = 0.02
"""Share of the requests between two progress messages."""

Tell = Callable[[EngineMessage], None]


def check_anchors_fit() -> None:
    """Check that the tracer fits this vLLM.

    Raises:
        VstateError: It does not.
    """
    from vstate.tracer.anchors import check_anchors, misfits

    if bad := misfits(check_anchors()):
        raise VstateError(f"this vLLM is not supported, it lacks {bad[0]}; see vstate doctor")


def text_prompts(job: EngineJob, vllm_config: Any) -> PromptSource:
    """Return where a job's prompts come from, on an engine of this configuration."""
    vocabulary = job.text_vocabulary or vllm_config.model_config.get_vocab_size()
    return PromptSource(job.seed, vocabulary, job.placeholders, vllm_config.cache_config.block_size)


def drive_job(job: EngineJob, engine: EnginePort, prompts: PromptSource, max_model_len: int, tell: Tell) -> Driven:
    """Drive a job's workload and tell of its progress.

    Raises:
        VstateError: The workload does not fit the model; before anything of it was run, where that is known.
    """
    path = Path(job.workload)
    requests = job.requests
    if not job.skip_too_long:
        for line in iter_workload(path):
            if isinstance(line, WorkloadRequest):
                check_fit(line, prompts.least_tokens(line), prompts.output_tokens(line), max_model_len)
    last = 0.0

    def progress(ended: int) -> EngineMessage:
        return EngineMessage(
            kind="running",
            ended=ended,
            requests=requests,
            block_tokens=prompts.block_tokens,
            resident_bytes=resident_bytes(),
        )

    tell(progress(0))

    def told(ended: int) -> None:
        nonlocal last
        if ended / requests >= last + TOLD_EVERY:
            last = ended / requests
            tell(progress(ended))

    return drive(
        engine,
        iter_workload(path),
        in_order_of_time=job.in_order_of_time,
        referenced=job.referenced,
        skip_too_long=job.skip_too_long,
        told=told,
    )


def resident_bytes() -> int:
    """Return the memory that this process has resident; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def main(run: Callable[[EngineJob, Tell], Any]) -> None:
    """Run the job whose path is the only argument."""
    pipe = _own_standard_output()

    def tell(message: EngineMessage) -> None:
        pipe.write(message.model_dump_json() + "\n")
        pipe.flush()

    try:
        run(EngineJob.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8")), tell)
    except Exception as error:
        import traceback

        traceback.print_exc()
        tell(EngineMessage(kind="failed", error=one_line(error)))
        sys.stderr.flush()
        # An engine that failed inside a step cannot be shut down in order: the next call hangs.
        os._exit(1)


def _own_standard_output() -> TextIO:
    """Keep the launcher's pipe to ourselves and send everything else to standard error."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return pipe
