"""Runs the same workload on two engines of one process; the tracing of the second is switched on the way.

usage: python switched_engines.py MODEL TURNS ANSWER (the environment says where the trace goes)
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from vllm import EngineArgs
from vllm.v1.engine.llm_engine import LLMEngine

from support.switching import SwitchedEngine
from vstate.tracer.engines.driver import drive
from vstate.tracer.engines.llm_port import LlmPort
from vstate.tracer.models.tiny import build, engine_arguments, tiny_model
from vstate.tracer.workloads.prompts import PromptSource
from vstate.tracer.workloads.smoke import smoke


def main() -> None:
    model = tiny_model(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        folder = build(model, Path(scratch))
        settings = {"num_gpu_blocks_override": model.smoke_blocks}
        arguments = EngineArgs(model=str(folder), **engine_arguments(model, folder, settings))
        # Both are there before either runs: what hooks put on one must not be met on the other.
        engines = [SwitchedEngine(LLMEngine.from_engine_args(arguments), at) for at in ("{}", sys.argv[2])]
        for engine in engines:
            config = engine.vllm_config
            prompts = PromptSource(0, config.model_config.get_vocab_size(), {}, config.cache_config.block_size)
            drive(LlmPort(engine, prompts, config.model_config.max_model_len), smoke(), told=lambda _: None)
        for engine in engines:
            engine.engine_core.shutdown()
    told = [{"tokens": e.tokens, "hooks": e.hooks, "folders": e.folders, "turns": e.turns} for e in engines]
    Path(sys.argv[3]).write_text(json.dumps(told))
    # The engines are shut down; what native libraries do while an interpreter ends is not under test.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
