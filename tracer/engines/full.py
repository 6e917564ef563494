"""The engine `full`: vLLM with a real forward, in a process of its own.

Started by `launch.py` as ``python -m vstate.tracer.engines.full JOB``. The launcher's pipe is
standard output; what vLLM prints goes to standard error, which is the run's `engine.log`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, TextIO

from vstate.schemas.errors import VstateError
from vstate.schemas.workload import parse_line
from vstate.tracer.engines.driver import drive
from vstate.tracer.engines.job import EngineJob, EngineMessage
from vstate.tracer.workloads.prompts import PromptSource

TOLD_EVERY = 0.02
"""Share of the requests between two progress messages."""


def run(job: EngineJob, tell: Any) -> None:
    """Start the engine, drive the workload through it and shut it down.

    Raises:
        VstateError: vLLM does not fit the tracer, or the workload does not fit the model.
    """
    from vstate.tracer.anchors import check_anchors, misfits

    if bad := misfits(check_anchors()):
        raise VstateError(f"this vLLM is not supported, it lacks {bad[0]}; see vstate doctor")
    from vllm import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    arguments = EngineArgs(model=job.model, seed=job.seed, **job.arguments)
    engine = LLMEngine.from_engine_args(arguments)
    config = engine.vllm_config
    block_tokens = config.cache_config.block_size
    lines = [parse_line(line) for line in job.workload]
    tell(EngineMessage(kind="running", block_tokens=block_tokens))
    last = 0.0

    def told(ended: int, requests: int) -> None:
        nonlocal last
        if ended / requests >= last + TOLD_EVERY:
            last = ended / requests
            tell(EngineMessage(kind="running", ended=ended, requests=requests, block_tokens=block_tokens))

    vocabulary = job.text_vocabulary or config.model_config.get_vocab_size()
    prompts = PromptSource(job.seed, vocabulary, job.placeholders, block_tokens)
    steps = drive(engine, lines, prompts, config.model_config.max_model_len, told)
    engine.engine_core.shutdown()
    tell(EngineMessage(kind="done", steps=steps, block_tokens=block_tokens))


def _own_standard_output() -> TextIO:
    """Keep the launcher's pipe to ourselves and send everything else to standard error."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return pipe


def one_line(error: BaseException) -> str:
    """First line of an error that says something, with its type."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return text if isinstance(error, VstateError) else f"{type(error).__name__}: {text}"


def main() -> None:
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


if __name__ == "__main__":
    main()
