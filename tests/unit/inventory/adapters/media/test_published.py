"""Rows and weights of the true-size models against figures that others published or measured."""

import pytest

from support.encoders import encoder_of, weight_parts_of
from vstate.inventory.adapters.plan import MediaItem
from vstate.tracer.models.full_models import full_model

WIDTH = 2
"""Bytes of an element in bfloat16."""


def encoder(name, **settings):
    model = full_model(name)
    files = {"processor": model.media.files} if model.media else {}
    return encoder_of(name, model.config, files | settings)


def image(width, height):
    return MediaItem("image", width, height)


ROWS = {
    "step-3.7-flash": {(1024, 1024): 493, (1920, 1080): 817, (3024, 3024): 3085},
    "mimo-v2.5": {(1024, 1024): 1024, (1920, 1080): 2040, (4096, 4096): 8100},
    "nemotron-3-nano-omni": {(512, 512): 256, (1024, 1024): 1024, (1920, 1080): 2040, (8000, 8000): 3306},
    "qwen3.6-35b-a3b": {(1024, 1024): 1024, (1920, 1080): 2040, (4096, 4096): 16384, (64, 64): 64},
    "qwen3.6-27b": {(1024, 1024): 1024, (1920, 1080): 2040, (8192, 8192): 16384},
}
"""Rows of images, those of the largest ones by arithmetic on the published limits of pixels or patches.

A square has 90 by 90 rows below MiMo's 8192. Nemotron's 13312 patches are less than a square of 116: one side has
two less.
"""


@pytest.mark.parametrize("name", ROWS)
def test_images_have_the_rows_that_are_published(name):
    rules = encoder(name).rules
    assert {size: rules.expand(image(*size)).rows for size in ROWS[name]} == ROWS[name]


LARGEST = {
    "step-3.7-flash": {"image": 3164},
    "mimo-v2.5": {"image": 8192, "video": 14 * 8192},
    "nemotron-3-nano-omni": {"image": 511**2, "video": 2**18, "audio": 2**18},
    "qwen3.6-35b-a3b": {"image": 16384, "video": 12288},
}


@pytest.mark.parametrize("name", LARGEST)
def test_encoder_caches_are_sized_by_what_vllm_takes_for_the_largest_item(name):
    text = full_model(name).text_config
    assert encoder(name).rules.largest_rows(text["max_position_embeddings"]) == LARGEST[name]


def test_step_s_largest_image_takes_marks_beside_its_rows():
    assert encoder("step-3.7-flash").rules.expand(image(3024, 3024)).tokens == 3164


@pytest.mark.parametrize(("name", "rate"), [("nemotron-3-nano-omni", 12.5), ("mimo-v2.5", 6.25)])
def test_sounds_have_their_published_rows_a_second(name, rate):
    rules = encoder(name).rules
    assert rules.expand(MediaItem("audio", seconds=2)).rows == -(-2 * rate // 1)
    assert rules.expand(MediaItem("audio", seconds=600)).rows == pytest.approx(600 * rate, rel=0.003)


def test_a_tubelet_of_nemotron_s_has_256_rows_and_two_frames():
    rules = encoder("nemotron-3-nano-omni").rules
    video = MediaItem("video", 1024, 1024, frames=5)
    words = [25, 26, 14]  # of "Frame 1 sampled at 0.00 seconds and frame 2 sampled at 0.50 seconds: " and so on
    assert rules.expand(video).rows == rules.expand(video).tokens == 3 * (256 + 2) + sum(words)


PARAMETERS = {
    "step-3.7-flash": {"tower": "1.98"},
    "mimo-v2.5": {"tower": "1.145"},
    "nemotron-3-nano-omni": {"tower": "1.263", "projector": "0.175"},
    "qwen3.6-35b-a3b": {"": "0.4466"},
    "qwen3.6-27b": {"": "0.4607"},
}
"""Billions of parameters that were measured apart from this repository; part "" is the whole encoder.

Step's are 1.96 of its vision and 0.025 of its projector (6144 to 4096), which vLLM counts to the tower. MiMo's are
0.7286 of its vision and 0.4167 of its sound. Nemotron's are 0.654 of its vision, 0.624 of its sound and 0.160 of its
projector; of the sound, 0.015 are its projector's (1024 to 4096 to 2688).
"""
BUFFERS = {
    "step-3.7-flash": 47 * (52 * 52) * 96 * 4,
    "mimo-v2.5": 8192 * 32 * WIDTH + 256,
    "nemotron-3-nano-omni": 3 * 8 + 24 * (8 + 2 * 1024 * WIDTH) + 1024 // 2 * WIDTH,
    "qwen3.6-35b-a3b": 8192 * 36 * WIDTH,
    "qwen3.6-27b": 8192 * 36 * WIDTH,
}
"""Bytes of tables of angles, running means and indices, which are no parameters."""


@pytest.mark.parametrize("name", PARAMETERS)
def test_towers_have_the_parameters_that_were_measured(name):
    parts = weight_parts_of(encoder(name))
    parts["tower"] -= BUFFERS[name]
    parts[""] = sum(parts.values())
    found = {part: parts[part] / WIDTH / 1e9 for part in PARAMETERS[name]}
    assert {part: f"{found[part]:.{len(said) - 2}f}" for part, said in PARAMETERS[name].items()} == PARAMETERS[name]


def test_ranks_share_blocks_and_have_the_rest_whole():
    whole, half = (weight_parts_of(encoder("qwen3.6-27b", tensor_parallel_size=ranks)) for ranks in (1, 2))
    hidden, inner, merged, out = 1152, 4304, 4608, 5120
    cut = 27 * (hidden * (3 * hidden + hidden + 2 * inner) + 3 * hidden + inner)
    assert whole["tower"] - half["tower"] == cut // 2 * WIDTH
    assert whole["projector"] - half["projector"] == (merged * merged + merged + merged * out) // 2 * WIDTH
    data = encoder("qwen3.6-27b", tensor_parallel_size=2, mm_encoder_tp_mode="data")
    assert weight_parts_of(data) == whole


SIGLIP = {
    "hidden_size": 1152,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "intermediate_size": 4304,
    "patch_size": 14,
    "image_size": 896,
}


def test_gemma_s_tower_is_the_published_one_of_417_million():
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "dtype": "bfloat16",
        "text_config": {"hidden_size": 2560},
        "vision_config": SIGLIP,
    }
    gemma = encoder_of("gemma", config, {})
    positions = (896 // 14) ** 2
    assert f"{(weight_parts_of(gemma)['tower'] - 8 * positions) / WIDTH / 1e6:.0f}" == "417"
    assert gemma.rules.expand(image(500, 500)).rows == 256


def test_lfm_s_tiles_have_256_rows_and_its_images_64_to_256():
    config = {
        "architectures": ["Lfm2VlForConditionalGeneration"],
        "dtype": "bfloat16",
        "projector_hidden_size": 2048,
        "text_config": {"hidden_size": 2048},
        "vision_config": SIGLIP | {"patch_size": 16},
    }
    lfm = encoder_of("lfm", config, {})
    assert lfm.rules.expand(image(10, 10)).rows == 64
    assert lfm.rules.expand(image(512, 512)).rows == 256
    # 1024 by 512 pixels are two tiles and no more than twice the most rows of one piece: it is shrunk.
    assert lfm.rules.expand(image(1024, 512)).rows == pytest.approx(256, abs=25)
    tiles, thumbnail = 8, 242
    assert lfm.rules.expand(image(2048, 1024)).rows == tiles * 256 + thumbnail
