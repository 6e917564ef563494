"""Builds models on the meta device and writes down their specs, groups, pools and weights: vLLM's own figures.

usage: python live_shapes.py ANSWER < CASES, where CASES is a JSON object of {name: Case} and ANSWER is a file
       python live_shapes.py -, which answers each line of its input, one case, with a line

Each case is built in a fork of this process, which has vLLM imported; an answer is Shapes or {"error": text}.
"""

import dataclasses
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

from vstate.inventory.from_vllm import (
    attention_backends,
    engine_settings,
    group_manifests,
    platform_name,
    pool_manifests,
)
from vstate.inventory.parts import BUILT, built_model, weight_parts
from vstate.inventory.state_inventory import StateInventory
from vstate.inventory.worker_state import encoder_output
from vstate.tracer.engines.request import RunRequest
from vstate.tracer.engines.resolve import resolve_model
from vstate.tracer.models.meta_build import restore_latent_settings

WORKER = "vstate.tracer.engines.scheduler_worker.SchedulerWorker"


def shapes_of(case):
    """Build one case.

    Args:
        case: ``model`` (a model as `vstate trace run` takes it), ``settings`` (engine arguments), ``drafting``
            (as ``--spec`` takes it), and ``config``: values that replace those of the configuration, by dotted path.
    """
    from vllm import EngineArgs
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor import Executor

    with tempfile.TemporaryDirectory() as scratch:
        request = RunRequest(
            model=case["model"],
            workload="none",
            out=Path(scratch),
            seed=0,
            settings={"num_gpu_blocks_override": 65536} | case.get("settings", {}),
            own_process=False,
            engine="scheduler",
            drafting=case.get("drafting", ""),
        )
        resolved = resolve_model(request, Path(scratch))
        if "config" in case:
            change(Path(resolved.location) / "config.json", case["config"])
        if "draft_config" in case:
            change(Path(resolved.arguments["speculative_config"]["model"]) / "config.json", case["draft_config"])
        arguments = {"worker_cls": WORKER, "distributed_executor_backend": "uni"} | resolved.arguments
        config = EngineArgs(model=resolved.location, **arguments).create_engine_config()
        restore_latent_settings(config, resolved.arguments)
        core = EngineCore(config, Executor.get_class(config), log_stats=False)
    worker, scheduler = core.model_executor.driver_worker.worker, core.scheduler
    layers = dict(config.compilation_config.static_forward_context)
    outside = [part.component for part in built_parts(worker.model, worker.draft)]
    budget = multimodal_budget(config)
    if output := encoder_output(config, budget.encoder_cache_size if budget else 0):
        outside.append(output)
    inventory = StateInventory(
        settings=engine_settings(config, scheduler),
        pools=pool_manifests(scheduler),
        groups=group_manifests(scheduler, layers),
        outside=tuple(outside),
    )
    return {
        "inventory": inventory.model_dump(mode="json"),
        "specs": {name: described(spec) for name, spec in worker.get_kv_cache_spec().items()},
        "layout": config.cache_config.kv_cache_layout,
        "platform": platform_name(),
        "backends": attention_backends(layers),
        "modules": {name: part.planned for name, part in getattr(worker.model, BUILT).modules.items() if part.planned},
        "draft_modules": (
            {name: part.planned for name, part in getattr(worker.draft, BUILT).modules.items() if part.planned}
            if worker.draft is not None
            else {}
        ),
    }


def built_parts(target, draft):
    """Take target and draft apart as the tracer does when they are built."""
    for model in (target, draft):
        if model is not None:
            setattr(model, BUILT, built_model(model))
    return weight_parts(target, draft)


def multimodal_budget(config):
    """Make what a worker sizes its encoder cache by; None for a model without media."""
    if not config.model_config.is_multimodal_model:
        return None
    from vllm.multimodal import MULTIMODAL_REGISTRY
    from vllm.multimodal.encoder_budget import MultiModalBudget

    return MultiModalBudget(config, MULTIMODAL_REGISTRY)


def described(spec):
    """Say what a layer's spec says."""
    told = {
        field.name: getattr(spec, field.name) for field in dataclasses.fields(spec) if field.name != "kv_cache_specs"
    }
    return {"kind": type(spec).__name__, "page_bytes": spec.page_size_bytes} | {k: plain(v) for k, v in told.items()}


def plain(value):
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    return value if isinstance(value, int | float | bool | str | None) else str(value)


def change(path, values):
    """Replace values of a configuration; a value of None takes the field out."""
    config = json.loads(path.read_text(encoding="utf-8"))
    for place, value in values.items():
        *parents, last = place.split(".")
        part = config
        for parent in parents:
            part = part[parent]
        if value is None:
            part.pop(last, None)
        else:
            part[last] = value
    path.write_text(json.dumps(config), encoding="utf-8")


def in_fork(case, path):
    """Build a case in a fork, whose answer goes to a file."""
    path.unlink(missing_ok=True)
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"error": "the process died"}
    try:
        answer = shapes_of(case)
    except BaseException as error:  # a case that cannot be built is an answer
        traceback.print_exc()
        answer = {"error": f"{type(error).__name__}: {error}"}
    path.write_text(json.dumps(answer), encoding="utf-8")
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    import vllm
    import vllm.v1.engine.core

    assert vllm.v1.engine.core
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "answer"
        if sys.argv[1] == "-":
            for line in sys.stdin:
                answers.write(json.dumps(in_fork(json.loads(line), path)) + "\n")
                answers.flush()
        else:
            cases = json.load(sys.stdin)
            found = {name: in_fork(case, path) for name, case in cases.items()}
            Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
