"""Rules of media by hand, and what is refused: items, processors and configurations."""

import json
from dataclasses import replace
from math import prod

import pytest

from support.encoders import encoder_of, weight_parts_of
from vstate.inventory.adapters.media.resize import Pixels, Size, fit_image, largest
from vstate.inventory.adapters.media.tiles import closest_grid, grids
from vstate.inventory.adapters.media.words import text_tokens
from vstate.inventory.adapters.plan import MediaItem, MediaRules
from vstate.schemas.errors import VstateError
from vstate.tracer.models.files import package_text
from vstate.tracer.models.tiny import tiny_model

MODELS = {
    "qwen": "qwen3.5-vl",
    "lfm": "lfm2-vl",
    "gemma": "gemma3-mm",
    "step": "step-3.7",
    "nemotron": "nemotron-omni",
    "mimo": "mimo-omni",
}


def configuration(family, **changes):
    """Return the configuration of a tiny model with values changed by path; None takes a field out."""
    config = json.loads(package_text("tiny", f"{MODELS[family]}.json"))
    config["dtype"] = "bfloat16"
    for path, value in changes.items():
        *parents, last = path.split("__")
        part = config
        for parent in parents:
            part = part[parent]
        part.pop(last, None)
        if value is not None:
            part[last] = value
    return config


def encoder(family, files=None, settings=None, **changes):
    processor = tiny_model(MODELS[family]).media.files | (files or {})
    processor = {name: value for name, value in processor.items() if value is not None}
    return encoder_of(family, configuration(family, **changes), {"processor": processor} | (settings or {}))


def image(width, height):
    return MediaItem("image", width, height)


@pytest.mark.parametrize("family", MODELS)
def test_media_of_another_kind_and_of_no_size_are_refused(family):
    rules = encoder(family).rules
    for kind in {"image", "video", "audio"} - set(rules.kinds):
        with pytest.raises(VstateError, match=f"takes no {kind}"):
            rules.expand(MediaItem(kind, 64, 64, 4, 1.0))
        with pytest.raises(VstateError, match=f"takes no {kind}"):
            rules.host_bytes(MediaItem(kind, 64, 64, 4, 1.0))
    for item in (image(0, 64), image(64, -1)):
        with pytest.raises(VstateError, match="give its width and height"):
            rules.expand(item)
    if "video" in rules.kinds:
        with pytest.raises(VstateError, match="give its frames"):
            rules.expand(MediaItem("video", 64, 64))
    if "audio" in rules.kinds:
        with pytest.raises(VstateError, match="give its seconds"):
            rules.expand(MediaItem("audio"))


@pytest.mark.parametrize("family", MODELS)
def test_a_tower_that_no_request_may_use_is_not_built(family):
    kinds = encoder(family).rules.kinds
    assert encoder(family, settings={"limit_mm_per_prompt": dict.fromkeys(kinds, 0)}).weights == ()
    assert weight_parts_of(encoder(family, settings={"limit_mm_per_prompt": {"image": 3}}))


AUDIO = {"input_local_layers": 1, "input_local_dim": 64, "input_local_attn_heads": 4}


def test_each_of_mimo_s_towers_is_left_out_by_itself():
    def tower(**limits):
        parts = weight_parts_of(encoder("mimo", settings={"limit_mm_per_prompt": limits}, audio_config=AUDIO))
        return parts.get("tower", 0)

    assert tower() == tower(audio=0) + tower(image=0, video=0)
    assert tower(audio=0) == weight_parts_of(encoder("mimo"))["tower"]


REFUSED = [
    ("qwen", {"vision_config": None}, {}, "no vision_config"),
    ("qwen", {"vision_config__depth": None}, {}, "no vision_config.depth"),
    ("qwen", {"vision_config__num_heads": 3}, {"tensor_parallel_size": 2}, "3 attention heads cannot be shared by 2"),
    ("gemma", {"vision_config__image_size": None}, {}, "no vision_config.image_size"),
    ("gemma", {"mm_tokens_per_image": 256}, {}, "asks for 64 rows an image, the model makes 256"),
    ("lfm", {"projector_hidden_size": None}, {}, "no projector_hidden_size"),
    ("lfm", {"downsample_factor": 4}, {}, "patches of 16 by 2, the model's are"),
    ("step", {"vision_config__width": None}, {}, "no vision_config.width"),
    ("step", {"vision_config__use_rope2d": False}, {}, "use_rope2d is off"),
    ("nemotron", {"vision_config__args__model": "vit_giant"}, {}, "args.model is vit_giant; known are vit_small"),
    ("nemotron", {"vision_config__args__norm_type": "rms_norm"}, {}, "args.norm_type is not layer_norm"),
    ("nemotron", {"sound_config__hidden_size": None}, {}, "no sound_config.hidden_size"),
    ("nemotron", {"downsample_ratio": 0.25}, {}, "downsample_ratio is not 0.5"),
    (
        "nemotron",
        {"vision_config__video_target_num_patches": 64, "vision_config__video_target_img_size": 128},
        {},
        "leave one away",
    ),
    ("mimo", {"vision_config__num_key_value_heads": None}, {}, "no vision_config.num_key_value_heads"),
    ("mimo", {"audio_config": AUDIO | {"projection_layers": 3}}, {}, "projection_layers is 3"),
    ("mimo", {"audio_config": AUDIO | {"speech_vocab_size": "many"}}, {}, "speech_vocab_size is 'many'"),
]


@pytest.mark.parametrize(("family", "changes", "settings", "said"), REFUSED)
def test_what_a_configuration_lacks_or_nobody_builds_is_named(family, changes, settings, said):
    with pytest.raises(VstateError, match=said):
        encoder(family, settings=settings, **changes)


IMAGES, VIDEOS, PROCESSOR = "preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({IMAGES: {"merge_size": 2, "temporal_patch_size": 2}}, "patch_size is 14, the vision tower's is 16"),
        ({VIDEOS: {"patch_size": 16, "merge_size": 4}}, f"{VIDEOS}: merge_size is 4, the vision tower's is 2"),
        ({VIDEOS: {"video_processor_type": "OtherVideoProcessor"}}, "processed by OtherVideoProcessor"),
        ({VIDEOS: None}, "processed by Qwen2VLVideoProcessor"),
        ({IMAGES: {"patch_size": 16, "size": {"shortest_edge": 9}}}, "no preprocessor_config.json: size.longest_edge"),
        ({IMAGES: {"patch_size": 16, "do_normalize": True}}, "gives no image_mean and image_std"),
        ({PROCESSOR: []}, "processor_config.json holds no object"),
    ],
)
def test_what_is_wrong_with_a_processor_s_files_is_named(files, said):
    with pytest.raises(VstateError, match=said):
        encoder("qwen", files)


def test_a_processor_without_files_has_the_limits_of_its_class_and_says_so():
    rules = encoder("qwen", {IMAGES: None, VIDEOS: None}).rules
    assert (rules.images, rules.videos) == (Pixels(3136, 1003520), Pixels(131072, 786432))
    assert [said for said in rules.assumed if "not there" in said and "class" in said] == [*rules.assumed[1:]]
    assert len(rules.assumed) == 3
    assert len(encoder("qwen").rules.assumed) == 1


@pytest.mark.parametrize(
    ("width", "height"), [(1, 1), (31, 33), (512, 512), (3000, 20), (700, 4001), (46341, 46341), (33, 6400)]
)
def test_an_image_is_brought_to_units_within_the_limits_and_keeps_its_shape(width, height):
    unit, limits = 32, Pixels(65536, 1_000_000)
    size = fit_image(Size(width, height), unit, limits)
    assert size.width % unit == size.height % unit == 0
    assert limits.least <= prod(size) <= limits.most
    assert abs(size.width - size.height * width / height) <= unit * max(1, width / height) + unit


def test_an_image_that_is_too_long_is_refused():
    with pytest.raises(VstateError, match="over 200 times"):
        fit_image(Size(6433, 32), 32, Pixels(1024, 10**6))
    for family in ("qwen", "mimo"):
        with pytest.raises(VstateError, match="over 200 times"):
            encoder(family).rules.expand(image(64 * 201, 64))
    with pytest.raises(VstateError, match="shrunk to nothing"):
        encoder("step").rules.expand(image(200_000, 40))
    with pytest.raises(VstateError, match="shrunk to nothing"):
        encoder("nemotron").rules.expand(image(200_000, 8))


@pytest.mark.parametrize("pixels", [32 * 32, 16777216, 262144, 7 * 1024, 997 * 1024, 1009 * 1024 + 5])
def test_the_largest_image_has_the_most_units_with_sides_of_a_shape_that_is_taken(pixels):
    """By trying all sides: a prime number of units has none but itself and one."""
    unit = 32
    most = pixels // unit**2
    best = max(a * b for a in range(1, most + 1) for b in range(a, min(200 * a, most // a) + 1) if a * b <= most)
    found = largest(pixels, unit)
    assert prod(found) == best * unit**2
    assert max(found) <= 200 * min(found)


def test_no_pixels_hold_no_image():
    with pytest.raises(VstateError, match="raise the processor's limit"):
        largest(1023, 32)


def test_tiles_come_closest_to_the_image_s_shape():
    choices = grids(2, 10)
    assert len(choices) == len({*choices}) == sum(2 <= a * b <= 10 for a in range(1, 11) for b in range(1, 11))
    assert [grid.tiles for grid in choices] == sorted(grid.tiles for grid in choices)
    assert closest_grid(2000, 1000, 256, choices) == (4, 2)
    assert closest_grid(400, 200, 256, choices) == (2, 1)
    assert closest_grid(100, 1000, 256, choices) == (1, 10)


def test_a_token_of_a_text_is_a_word_a_digit_or_a_mark():
    """The counts are those of Qwen's and of Mistral's published vocabularies."""
    counts = {
        "<0.5 seconds>": 6,
        "<1234.0 seconds>": 9,
        "00:01": 5,
        "Frame 1 sampled at 0.00 seconds and frame 2 sampled at 0.50 seconds: ": 25,
        "\nFrame 13 sampled at 6.00 seconds and frame 14 sampled at 6.50 seconds: ": 28,
        "Frame 5 sampled at 2.00 seconds: ": 13,
    }
    assert {text: text_tokens(text) for text in counts} == counts


def test_words_between_frames_are_tokens_beside_the_rows():
    """Qwen: a moment and two marks for each pair; MiMo: two more around it all; Nemotron's words are rows too."""
    video = MediaItem("video", 256, 256, frames=5, frames_per_second=1.0)
    seen = []

    def tokens(text):
        seen.append(text)
        return 100

    found = {
        family: replace(encoder(family).rules, text_tokens=tokens).expand(video)
        for family in ("qwen", "mimo", "nemotron")
    }
    assert {family: made.tokens - made.rows for family, made in found.items()} == {
        "qwen": 3 * (100 + 2),
        "mimo": 3 * (100 + 2) + 2,
        "nemotron": 0,
    }
    assert found["nemotron"].rows == 3 * (100 + 2 + 64)
    assert seen == [
        *("<0.5 seconds>", "<2.5 seconds>", "<4.0 seconds>"),
        *("00:00", "00:02", "00:04"),
        "Frame 1 sampled at 0.00 seconds and frame 2 sampled at 1.00 seconds: ",
        "\nFrame 3 sampled at 2.00 seconds and frame 4 sampled at 3.00 seconds: ",
        "\nFrame 5 sampled at 4.00 seconds: ",
    ]


def test_items_on_the_host_by_hand():
    """Pixels in bytes or in the model's type, and the numbers that stand beside them."""
    assert encoder("qwen").rules.host_bytes(image(64, 64)) == 2 * 64 * 64 * 3 + 3 * 8
    assert encoder("mimo").rules.host_bytes(image(64, 64)) == 2 * 64 * 64 * 3 * 2 + 3 * 4
    assert encoder("gemma").rules.host_bytes(image(9, 9)) == 224 * 224 * 3 * 2 + 8
    assert encoder("lfm").rules.host_bytes(image(64, 64)) == 256 * 16 * 16 * 3 * 2 + 2 * 8 + 8
    assert encoder("step").rules.host_bytes(image(100, 100)) == 728 * 728 * 3 * 2 + 8
    assert encoder("nemotron").rules.host_bytes(image(64, 64)) == 64 * 64 * 3 * 2
    sound = MediaItem("audio", seconds=2)
    assert encoder("nemotron").rules.host_bytes(sound) == 201 * (80 * 2 + 1) + 8
    assert encoder("mimo").rules.host_bytes(sound) == 201 * 128 * 2 + 8
    half = {"dtype": "float32"}
    assert encoder("mimo", settings=half).rules.host_bytes(image(64, 64)) == 2 * 64 * 64 * 3 * 4 + 3 * 4


def test_an_image_whose_tiles_only_vllm_counts_is_refused():
    rules = encoder("lfm").rules
    assert rules.expand(image(256, 256)).rows == 64
    with pytest.raises(VstateError, match="set min_tiles and max_tiles to 1"):
        rules.expand(image(1000, 500))


def test_a_sound_shorter_than_half_a_window_is_refused():
    with pytest.raises(VstateError, match="no half a window of 960 samples"):
        encoder("mimo").rules.expand(MediaItem("audio", seconds=0.02))
    assert encoder("mimo").rules.expand(MediaItem("audio", seconds=0.021)).rows == 1


def test_rules_of_nothing_are_nobody_s():
    rules = MediaRules()
    for call in (
        lambda: rules.expand(image(1, 1)),
        lambda: rules.host_bytes(image(1, 1)),
        lambda: rules.largest_rows(1),
    ):
        with pytest.raises(NotImplementedError):
            call()
