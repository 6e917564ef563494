"""The engine `scheduler`: vLLM's engine core, scheduler and pools with a worker that runs no model.

The model is built on the meta device for its specs, at its true size; tokens are seeded, time is modelled.
"""

from __future__ import annotations

from vstate.tracer.engines.core_port import CorePort
from vstate.tracer.engines.core_prompts import CorePrompts
from vstate.tracer.engines.job import EngineJob, EngineMessage
from vstate.tracer.engines.process import Tell, check_anchors_fit, drive_job, main, text_prompts
from vstate.tracer.modelled_time import CLOCK
from vstate.tracer.models.meta_build import restore_latent_settings

WORKER = "vstate.tracer.engines.scheduler_worker.SchedulerWorker"


def run(job: EngineJob, tell: Tell) -> None:
    """Start the engine core, drive the workload through it and shut it down.

    Raises:
        VstateError: vLLM does not fit the tracer, or the workload does not fit the model.
    """
    check_anchors_fit()
    from vllm import EngineArgs
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor import Executor

    arguments = {"worker_cls": WORKER, "distributed_executor_backend": "uni"} | job.arguments
    config = EngineArgs(model=job.model, seed=job.seed, **arguments).create_engine_config()
    restore_latent_settings(config, job.arguments)
    # A CPU's platform puts a setting of the environment in the place of what the worker answers.
    config.cache_config.kv_cache_memory_bytes = job.arguments.get("kv_cache_memory_bytes")
    CLOCK.start()
    core = EngineCore(config, Executor.get_class(config), log_stats=False)
    text, max_model_len = text_prompts(job, config), config.model_config.max_model_len
    port = CorePort(core, CorePrompts(text, job.seed, config), max_model_len)
    driven = drive_job(job, port, text, max_model_len, tell)
    costs = core.model_executor.driver_worker.worker.costs
    core.shutdown()
    tell(
        EngineMessage(
            kind="done",
            steps=driven.steps,
            skipped=driven.skipped,
            block_tokens=text.block_tokens,
            modelled_seconds=CLOCK.seconds,
            costs=costs.model_dump(),
        )
    )


if __name__ == "__main__":
    main(run)
