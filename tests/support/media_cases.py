"""Cases of media: models with their processors changed this way and that, and items of many sizes."""

from random import Random

KINDS = {
    "tiny/qwen3.5-vl": {"image": (904, 906, 905), "video": (904, 907, 905)},
    "tiny/lfm2-vl": {"image": (884,)},
    "tiny/gemma3-mm": {"image": (903,)},
    "tiny/step-3.7": {"image": (909,)},
    "tiny/nemotron-omni": {"image": (906,), "video": (907,), "audio": (910,)},
    "tiny/mimo-omni": {"image": (904, 906, 905), "video": (904, 907, 905), "audio": (909, 908, 910)},
    "full/qwen3.6-35b-a3b": {"image": (248053, 248056, 248054), "video": (248053, 248057, 248054)},
    "full/qwen3.6-27b": {"image": (248053, 248056, 248054), "video": (248053, 248057, 248054)},
    "full/step-3.7-flash": {"image": (128001,)},
    "full/nemotron-3-nano-omni": {"image": (131066,), "video": (131067,), "audio": (131070,)},
    "full/mimo-v2.5": {
        "image": (151652, 151655, 151653),
        "video": (151652, 151656, 151653),
        "audio": (151673, 151669, 151674),
    },
}
"""Token ids that stand for one item of a kind."""
RATES = {"nemotron": 16000, "mimo": 24000}
"""Rates of sounds that need no other rate made of them, for which vLLM wants a package more."""

EDGES = (1, 15, 31, 33, 64, 100, 257, 505, 728, 1000, 1601)
FRAMES = (1, 2, 3, 4, 7, 12)
SECONDS = (0.00001, 0.05, 0.1, 0.3, 1, 2, 7.77, 29.999, 30, 30.01, 61.5)


def items(kinds, count, seed, most=2000):
    """Return images, videos and sounds: those at edges of the rules, and ``count`` that are drawn."""
    draw = Random(seed)
    texts = []
    if "image" in kinds:
        edges = [(width, height) for width in EDGES for height in EDGES if max(width, height) <= most]
        drawn = [(round(most ** draw.random()), round(most ** draw.random())) for _ in range(count)]
        texts += [f"image:{width}x{height}" for width, height in edges + drawn]
    if "video" in kinds:
        sides = [(64, 64), (200, 100), (20, 300), (1000, 400), (30, 7000)]
        sides += [(draw.randint(8, 700), draw.randint(8, 700)) for _ in range(count // 8)]
        texts += [f"video:{w}x{h}x{f}@{draw.choice((0.3, 1, 2, 23.976))}" for w, h in sides for f in FRAMES]
    if "audio" in kinds:
        texts += [f"audio:{seconds}" for seconds in (*SECONDS, *(round(draw.uniform(0, 90), 4) for _ in range(10)))]
    return texts


def media_case(model, count=40, seed=1, most=2000, **changes):
    """Return a case of a model with changes."""
    rate = next((rate for name, rate in RATES.items() if name in model), 0)
    kinds = KINDS[model]
    return {
        "model": model,
        "placeholders": kinds,
        "rate": rate,
        "items": items(kinds, count, seed, most),
        **changes,
    }


_LFM_TILES = {
    "image_processor_type": "Lfm2VlImageProcessor",
    "downsample_factor": 2,
    "encoder_patch_size": 16,
    "min_image_tokens": 4,
    "max_image_tokens": 64,
    "tile_size": 256,
}
_QWEN_SIZES = {
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "size": {"shortest_edge": 4096, "longest_edge": 300_000},
}
_QWEN_IMAGES = _QWEN_SIZES | {"image_processor_type": "Qwen2VLImageProcessor"}
_QWEN_VIDEOS = _QWEN_SIZES | {"video_processor_type": "Qwen3VLVideoProcessor"}
_GEMMA = {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 224, "width": 224}}
_NEMOTRON_VISION = "vision_config.video_target_num_patches"

TINY_CASES = {
    "qwen": media_case("tiny/qwen3.5-vl"),
    "qwen, pixels of the model's type": media_case("tiny/qwen3.5-vl", settings={"mm_device_do_normalize": False}),
    "qwen, frames capped": media_case(
        "tiny/qwen3.5-vl",
        count=16,
        files={"video_preprocessor_config.json": _QWEN_VIDEOS | {"cap_pixels_per_frame": True, "max_video_tokens": 20}},
    ),
    "qwen, one file for images and videos": media_case(
        "tiny/qwen3.5-vl",
        count=16,
        files={
            "preprocessor_config.json": _QWEN_SIZES | {"min_pixels": 40_000, "max_pixels": 200_000},
            "video_preprocessor_config.json": None,
        },
    ),
    "qwen, both in one processor": media_case(
        "tiny/qwen3.5-vl",
        count=16,
        files={
            "processor_config.json": {
                "processor_class": "Qwen3VLProcessor",
                "image_processor": _QWEN_IMAGES,
                "video_processor": _QWEN_VIDEOS | {"size": {"shortest_edge": 4096, "longest_edge": 900_000}},
            },
        },
    ),
    "lfm, as the checkpoints cut images": media_case("tiny/lfm2-vl", files={"preprocessor_config.json": _LFM_TILES}),
    "lfm, few tiles": media_case(
        "tiny/lfm2-vl",
        files={
            "preprocessor_config.json": _LFM_TILES
            | {"tile_size": 128, "min_tiles": 1, "max_tiles": 4, "max_pixels_tolerance": 1.2}
        },
    ),
    "lfm, no tiles": media_case(
        "tiny/lfm2-vl",
        files={
            "preprocessor_config.json": _LFM_TILES
            | {"do_image_splitting": False, "min_tiles": 1, "max_tiles": 1, "use_thumbnail": False}
        },
    ),
    "lfm, tiles that vLLM alone counts": media_case("tiny/lfm2-vl"),
    "gemma": media_case("tiny/gemma3-mm", count=4, most=1000),
    "gemma, pan and scan asked for": media_case(
        "tiny/gemma3-mm",
        count=4,
        most=1000,
        files={
            "preprocessor_config.json": _GEMMA
            | {
                "do_pan_and_scan": True,
                "pan_and_scan_min_crop_size": 50,
                "pan_and_scan_max_num_crops": 4,
                "pan_and_scan_min_ratio_to_activate": 1.1,
            }
        },
    ),
    "step": media_case("tiny/step-3.7", count=80, most=5000),
    "step, without crops": media_case("tiny/step-3.7", count=4, config={"vision_config.enable_patch": False}),
    "nemotron": media_case("tiny/nemotron-omni"),
    "nemotron, a short context": media_case("tiny/nemotron-omni", settings={"max_model_len": 64}, count=20),
    "nemotron, tiles": media_case(
        "tiny/nemotron-omni",
        config={"vision_config.args.min_num_patches": None, "vision_config.args.max_num_patches": None},
    ),
    "nemotron, frames of a number of patches": media_case(
        "tiny/nemotron-omni", count=16, config={_NEMOTRON_VISION: 50}
    ),
    "nemotron, frames that keep their shape": media_case(
        "tiny/nemotron-omni",
        count=16,
        config={
            "vision_config.video_target_img_size": 130,
            "vision_config.video_maintain_aspect_ratio": True,
            "vision_config.video_temporal_patch_size": 3,
        },
    ),
    "nemotron, frames one by one": media_case(
        "tiny/nemotron-omni", count=16, config={"vision_config.video_temporal_patch_size": 1}
    ),
    "nemotron, in float32": media_case("tiny/nemotron-omni", settings={"dtype": "float32"}, count=4, most=300),
    "mimo": media_case("tiny/mimo-omni"),
    "mimo, in float32": media_case("tiny/mimo-omni", settings={"dtype": "float32"}, count=4, most=300),
    "mimo, other limits": media_case(
        "tiny/mimo-omni",
        count=16,
        config={
            "processor_config.image_min_pixels": 20_000,
            "processor_config.video_min_pixels": 3_000,
            "processor_config.video_total_max_pixels": 150_000,
        },
    ),
}

LARGE = ("image:1024x1024", "image:1920x1080", "image:3024x3024", "image:3840x2160", "image:4096x4096")


def full_case(model):
    """Return a case of a true-size model, with large items beside the others."""
    case = media_case(model, count=6)
    large = [*LARGE, *(["video:1280x720x40@2"] if "video" in KINDS[model] else [])]
    large += ["audio:600"] if "audio" in KINDS[model] else []
    return case | {"items": [*case["items"], *large]}


FULL_CASES = {model.partition("/")[2]: full_case(model) for model in KINDS if model.startswith("full/")}
