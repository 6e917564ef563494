"""Builds one true-size model on the meta device, in a process of its own, and prints what came out as JSON.

Usage: python shapes_of.py NAME FOLDER [--unpatched] [MEDIA...], where MEDIA is `image:1024x1024` or `audio:2`.
"""

import json
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from vstate.schemas.workload import MediaItem
from vstate.tracer.models.full_models import build_full, full_arguments, full_model
from vstate.tracer.models.meta_build import construction_patches, restore_latent_settings
from vstate.tracer.workloads.media import engine_media


def parts_of(model):
    """Count parameters by the first part of their name; those that are shared count once, for the first."""
    parts = Counter()
    for name, parameter in model.named_parameters():
        parts[name.partition(".")[0]] += parameter.numel()
    return parts


def described(spec):
    """Say what a layer's spec says, without padding."""
    return {
        "kind": type(spec).__name__,
        "role": str(getattr(spec, "cache_role", "") or ""),
        "block_tokens": spec.block_size,
        "page_bytes": spec.page_size_bytes,
        "window": getattr(spec, "sliding_window", None),
        "types": [str(dtype) for dtype in getattr(spec, "dtypes", ())],
    }


def media_of(model, vllm_config, asked):
    """Process one item of each size that is asked for; count its tokens and its rows."""
    if not asked:
        return {}
    from vllm.multimodal import MULTIMODAL_REGISTRY
    from vllm.multimodal.processing import ProcessorInputs, TimingContext

    processor = MULTIMODAL_REGISTRY.create_processor(vllm_config.model_config)
    counts = {}
    for text in asked:
        kind, _, size = text.partition(":")
        item = {"kind": kind, "name": "x"}
        if kind == "audio":
            item["seconds"] = float(size)
        else:
            item["width"], item["height"] = map(int, size.split("x"))
        data = {kind: [engine_media(MediaItem.model_validate(item), 0)]}
        inputs = ProcessorInputs([*model.media.placeholders[kind]], processor.info.parse_mm_data(data))
        done = processor.apply(inputs, TimingContext(enabled=False))
        place = done["mm_placeholders"][kind][0]
        counts[text] = {"tokens": len(done["prompt_token_ids"]), "rows": place.get_num_embeds()}
    return counts


def main():
    """Build what the command line names."""
    name, folder, *rest = sys.argv[1:]
    unpatched = "--unpatched" in rest
    from vllm import EngineArgs
    from vllm.config import set_current_vllm_config

    from vstate.doctor.plan_worker import PlanWorker

    model = full_model(name)
    arguments = full_arguments(model, build_full(model, Path(folder)), {})
    config = EngineArgs(model=folder, **arguments).create_engine_config()
    restore_latent_settings(config, arguments)
    with set_current_vllm_config(config):
        worker = PlanWorker(config, 0, 0, f"file://{folder}/rendezvous", is_driver_worker=True)
        worker.init_device()
        with nullcontext() if unpatched else construction_patches():
            worker.load_model()
        specs = worker.get_kv_cache_spec()
    told = {
        "parts": parts_of(worker.model),
        "draft": sum(parts_of(worker.draft).values()) if worker.draft else 0,
        "specs": {layer: described(spec) for layer, spec in specs.items()},
        "max_model_len": config.model_config.max_model_len,
        "prefix_caching": config.cache_config.enable_prefix_caching,
        "media": media_of(model, config, [text for text in rest if ":" in text]),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
