"""Runs a workload on vLLM's AsyncScheduler, two batches in flight, without a forward.

The CPU platform switches async scheduling off when a configuration is made, so it is switched on
again afterwards; the worker answers in `sample_tokens`, as an asynchronous one does.

usage: python async_engine.py MODEL [TURNS] (the environment says where the trace goes; `switching.py` turns)
"""

import os
import sys
import tempfile
from pathlib import Path

from vllm import EngineArgs
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.executor import Executor

from support.switching import SwitchedEngine
from vstate.tracer.engines.driver import drive
from vstate.tracer.engines.llm_port import LlmPort
from vstate.tracer.engines.stand_in import StandInWorker
from vstate.tracer.models.tiny import COMMON_ARGUMENTS, build, tiny_model
from vstate.tracer.workloads.prompts import PromptSource
from vstate.tracer.workloads.smoke import smoke


class AsyncStandInWorker(StandInWorker):
    """Keeps the output of a step until it is asked for."""

    def execute_model(self, scheduler_output):
        self._output = super().execute_model(scheduler_output)
        return None if scheduler_output.num_scheduled_tokens else self._output

    def sample_tokens(self, grammar_output):
        return self._output


def main() -> None:
    model = tiny_model(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        arguments = COMMON_ARGUMENTS | model.arguments
        arguments |= {
            "num_gpu_blocks_override": model.smoke_blocks,
            "max_model_len": 512,
            "worker_cls": "support.async_engine.AsyncStandInWorker",
        }
        config = EngineArgs(model=str(build(model, Path(scratch))), **arguments).create_engine_config()
        config.scheduler_config.async_scheduling = True
        engine = LLMEngine(vllm_config=config, executor_class=Executor.get_class(config), log_stats=False)
        core = engine.engine_core.engine_core
        assert core.batch_queue_size == 2, "the engine does not run ahead"
        assert type(core.scheduler).__name__ == "AsyncScheduler"
        prompts = PromptSource(0, config.model_config.get_vocab_size(), {}, config.cache_config.block_size)
        driven = SwitchedEngine(engine, sys.argv[2]) if len(sys.argv) > 2 else engine
        drive(LlmPort(driven, prompts, config.model_config.max_model_len), smoke(), told=lambda _: None)
        engine.engine_core.shutdown()
    # The engine is shut down; what native libraries do while an interpreter ends is not under test,
    # and has crashed there.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
