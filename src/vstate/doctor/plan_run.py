"""The plan's own process: vLLM's configuration, specs and pools for the arguments of `vllm serve`, without weights.

Started by `plan.py` as ``python -m vstate.doctor.plan_run``. The engine core is vLLM's own; its worker builds
the model on the meta device and runs nothing.
"""

from __future__ import annotations

import importlib
import os
import tempfile
import time
import traceback
from argparse import Namespace
from pathlib import Path
from typing import Any

from vstate.doctor.child import answer_parent
from vstate.doctor.plan import PlanAnswer, PlanRequest
from vstate.schemas.errors import VstateError, one_line
from vstate.tracer.anchors import replaced_classes
from vstate.tracer.engines.resolve import check_location
from vstate.tracer.models.tiny import build, engine_arguments, tiny_model
from vstate.tracer.session import process_manifest

WORKER = "vstate.doctor.plan_worker.PlanWorker"
PARSER_MODULES = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
"""Where the parser of `vllm serve` is, in vLLM 0.32 and before."""
TINY = "tiny/"


def plan(request: PlanRequest) -> PlanAnswer:
    """Answer for the arguments of `vllm serve`."""
    with tempfile.TemporaryDirectory(prefix="vstate-plan-") as scratch:
        try:
            config = engine_config(request, Path(scratch))
        except SystemExit:
            return PlanAnswer(wrong_input="vllm serve would print something and end; leave --help and the like away")
        except Exception as error:
            traceback.print_exc()
            return PlanAnswer(wrong_input=one_line(error))
        try:
            core = engine_core(config)
        except VstateError as error:
            return PlanAnswer(wrong_input=str(error))
        except Exception as error:
            traceback.print_exc()
            return PlanAnswer(refusal=one_line(error))
        return _answer(request, config, core)


def engine_config(request: PlanRequest, scratch: Path) -> Any:
    """Make vLLM's configuration as a server would.

    Raises:
        VstateError: An argument is wrong, or the model is unknown.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs

    parsed = _parse(request.arguments, {})
    model: str = parsed.model
    if model.startswith(TINY) and not Path(model).exists():
        tiny = tiny_model(model.removeprefix(TINY))
        folder = build(tiny, scratch)
        parsed = _parse(request.arguments, engine_arguments(tiny, folder, {}))
        parsed.model = str(folder)
    else:
        check_location(model, "tiny/NAME, a model folder, or a hub id")
    try:
        arguments = AsyncEngineArgs.from_cli_args(parsed)
        arguments.worker_cls, arguments.load_format = WORKER, "dummy"
        # Each data-parallel rank has pools of its own, of the same size; one is planned.
        arguments.data_parallel_size, arguments.data_parallel_size_local = 1, None
        if request.kv_cache_bytes is not None:
            arguments.kv_cache_memory_bytes = request.kv_cache_bytes
        config = arguments.create_engine_config()
    except OSError as error:
        raise VstateError(
            f"unknown model {model}: it is not on this machine; give tiny/NAME or a model folder, "
            "or set HF_HUB_OFFLINE=0 to have its configuration fetched"
        ) from error
    if request.kv_cache_bytes is not None:
        # A platform may have put a setting of the environment in its place.
        config.cache_config.kv_cache_memory_bytes = request.kv_cache_bytes
    parallel = config.parallel_config
    if parallel.pipeline_parallel_size > 1:
        raise VstateError("a plan is made for one pipeline stage; leave --pipeline-parallel-size away")
    if parallel.tensor_parallel_size > 1 and config.device_config.device_type != "cpu":
        raise VstateError("a plan of several tensor-parallel ranks is made on the CPU platform only")
    return config


def _parse(arguments: list[str], defaults: dict[str, Any]) -> Namespace:
    """Read the arguments with the parser of `vllm serve`; ``defaults`` stand for what is not given.

    Raises:
        VstateError: An argument is unknown or has a wrong value.
    """
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):  # type: ignore[misc]
        """Raises where vLLM's prints its usage and exits."""

        def error(self, message: str) -> Any:
            raise VstateError(f"vllm serve: {message.splitlines()[0]}")

    module = _first_module(PARSER_MODULES)
    parser = module.make_arg_parser(Parser())
    parser.set_defaults(**defaults)
    parsed: Namespace = parser.parse_args(arguments)
    if getattr(parsed, "model_tag", None) is not None:
        parsed.model = parsed.model_tag
    return parsed


def _first_module(names: tuple[str, ...]) -> Any:
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    return importlib.import_module(names[-1])


def engine_core(config: Any) -> Any:
    """Make the engine core that a server would make, on a worker without weights."""
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor import Executor

    return EngineCore(config, Executor.get_class(config), log_stats=False)


def _answer(request: PlanRequest, config: Any, core: Any) -> PlanAnswer:
    cache, manifest = config.cache_config, process_manifest(core.scheduler, (), time.monotonic_ns())
    tokens = getattr(cache, "kv_cache_size_tokens", None)
    memory, source = int(core.available_gpu_memory_for_kv_cache), "as the arguments or VLLM_CPU_KVCACHE_SPACE say"
    if cache.num_gpu_blocks_override is not None:
        memory, source = 0, "as --num-gpu-blocks-override says, whatever memory there is"
    elif request.kv_cache_bytes is not None:
        source = "as --kv-cache-bytes says"
    elif cache.kv_cache_memory_bytes is None:
        share = f"{cache.gpu_memory_utilization:.0%} of this machine's memory"
        source = f"assumed: {share} less the weights, with nothing taken off for activations"
    return PlanAnswer(
        manifest=manifest,
        model=request.model,
        capacity_tokens=tokens,
        full_length_requests=getattr(cache, "kv_cache_max_concurrency", None),
        memory_bytes=memory,
        memory_source=source,
        refusal=_refused_when_graphs_are_captured(config, core),
        replaced=replaced_classes(),
    )


def _refused_when_graphs_are_captured(config: Any, core: Any) -> str:
    """Say why a worker refuses later what the engine core accepts; empty where it does not.

    Source: ``CompilationConfig.resolve_cudagraph_mode_and_sizes`` (vLLM 0.32), which a GPU worker reaches
    only after the weights are loaded.
    """
    from vllm.config import CUDAGraphMode

    mode = config.compilation_config.cudagraph_mode or CUDAGraphMode.NONE
    sequences, blocks = config.scheduler_config.max_num_seqs, core.scheduler.kv_cache_config.num_blocks
    if not (mode.has_full_cudagraphs() and core.scheduler.kv_cache_config.has_mamba_layers) or sequences <= blocks:
        return ""
    return f"ValueError: max_num_seqs ({sequences}) exceeds available Mamba cache blocks ({blocks})"


if __name__ == "__main__":
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    answer_parent(PlanRequest, plan)
