"""Works out without an engine what `live_shapes.py` builds: the same case, answered by the adapters."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from support.live_shapes import change
from vstate.inventory.adapters.registry import find_adapter, model_dtype
from vstate.inventory.from_config import Geometry
from vstate.inventory.profiles import find_profile
from vstate.inventory.serving import ServingSettings
from vstate.tracer.engines.request import RunRequest
from vstate.tracer.engines.resolve import resolve_model


def as_an_engine_takes_it(case):
    """Return configuration and settings of a case, as its engine would take them."""
    with tempfile.TemporaryDirectory() as scratch:
        request = RunRequest(
            model=case["model"],
            workload="none",
            out=Path(scratch),
            seed=0,
            settings={"num_gpu_blocks_override": BLOCKS} | case.get("settings", {}),
            own_process=False,
            engine="scheduler",
            drafting=case.get("drafting", ""),
        )
        resolved = resolve_model(request, Path(scratch))
        folder = Path(resolved.location)
        change(folder / "config.json", case.get("config", {}))
        if "draft_config" in case:
            change(Path(resolved.arguments["speculative_config"]["model"]) / "config.json", case["draft_config"])
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return config, ServingSettings.from_arguments(resolved.arguments, folder)


BLOCKS = 65536


def static_shapes(case, platform):
    """Work a case out; a draft's weights with what it gives up when weights are loaded, which a meta build has not."""
    config, settings = as_an_engine_takes_it(case)
    return built_before_loading(config, settings, find_profile(platform))


def built_before_loading(config, settings, profile):
    """Return the inventory as JSON values, weights as they are before any is shared."""
    adapter = find_adapter(config)
    plan = adapter.plan(config, settings, profile)
    whole = tuple(replace(part, bytes=part.bytes + part.shared_bytes) for part in plan.weights)
    plan = replace(plan, weights=whole)
    found = Geometry(adapter.architecture(config), plan, model_dtype(config, settings), settings, profile).work_out()
    return {
        "settings": found.settings.model_dump(mode="json"),
        "pools": [pool.model_dump(mode="json") for pool in found.pools],
        "groups": [group.model_dump(mode="json") for group in found.groups],
        "outside": sorted((part.model_dump(mode="json") for part in found.outside), key=lambda part: part["id"]),
    }


def engine_shapes(answer):
    """Return an engine's answer in the same form."""
    inventory = answer["inventory"]
    return {
        "settings": inventory["settings"],
        "pools": inventory["pools"],
        "groups": inventory["groups"],
        "outside": sorted(inventory["outside"], key=lambda part: part["id"]),
    }


def differences(static, engine, place=""):
    """List where two values of JSON differ."""
    if isinstance(static, dict) and isinstance(engine, dict):
        names = sorted(set(static) | set(engine))
        return [d for n in names for d in differences(static.get(n), engine.get(n), f"{place}.{n}")]
    if isinstance(static, list) and isinstance(engine, list) and len(static) == len(engine):
        return [
            d for i, (a, b) in enumerate(zip(static, engine, strict=True)) for d in differences(a, b, f"{place}[{i}]")
        ]
    return [] if static == engine else [f"{place.lstrip('.')}: worked out {static}, vLLM {engine}"]
