"""The engine `full`: vLLM with a real forward, in a process of its own."""

from __future__ import annotations

from vstate.tracer.engines.job import EngineJob, EngineMessage
from vstate.tracer.engines.llm_port import LlmPort
from vstate.tracer.engines.process import Tell, check_anchors_fit, drive_job, main, text_prompts


def run(job: EngineJob, tell: Tell) -> None:
    """Start the engine, drive the workload through it and shut it down.

    Raises:
        VstateError: vLLM does not fit the tracer, or the workload does not fit the model.
    """
    check_anchors_fit()
    from vllm import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    engine = LLMEngine.from_engine_args(EngineArgs(model=job.model, seed=job.seed, **job.arguments))
    config = engine.vllm_config
    prompts, max_model_len = text_prompts(job, config), config.model_config.max_model_len
    driven = drive_job(job, LlmPort(engine, prompts, max_model_len), prompts, max_model_len, tell)
    engine.engine_core.shutdown()
    tell(EngineMessage(kind="done", steps=driven.steps, skipped=driven.skipped, block_tokens=prompts.block_tokens))


if __name__ == "__main__":
    main(run)
