"""Media of the tiny models: encoders, what items become, and what they take on the host, against vLLM's own."""

import json

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from support.encoder_variations import ENCODERS
from support.encoders import encoder_of, weight_parts_of
from support.media_cases import TINY_CASES
from support.static_media import differing_items, run_processors, static_encoder
from support.static_shapes import as_an_engine_takes_it
from vstate.tracer.models.tiny import build, engine_arguments, tiny_model

EXAMPLES = 6
"""Live builds per encoder; each takes a second or two."""
ENCODER = "encoder/encoder/"


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    return run_processors(TINY_CASES, tmp_path_factory.mktemp("media") / "answer")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", TINY_CASES)
def test_items_become_what_the_processor_makes_of_them(name, answers):
    assert differing_items(TINY_CASES[name], answers[name]) == {}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", TINY_CASES)
def test_the_largest_item_has_the_rows_that_vllm_takes_for_it(name, answers):
    encoder, engine = static_encoder(TINY_CASES[name])
    largest = encoder.rules.largest_rows(engine.max_model_len)
    expected = answers[name]["largest"]
    assert {kind: largest[kind] for kind in expected} == expected


@pytest.mark.timeout(900)
def test_one_row_or_byte_more_is_seen(answers):
    for name, live in answers.items():
        text, values = next((text, values) for text, values in live["items"].items() if "rows" in values)
        for field in ("tokens", "rows", "bytes"):
            changed = {"items": {text: values | {field: values[field] + 1}}}
            assert text in differing_items(TINY_CASES[name], changed), (name, field)


def encoder_parts(built):
    """Return the bytes of the encoder's parts that vLLM built."""
    outside = built["inventory"]["outside"]
    return {c["id"].removeprefix(ENCODER): c["engine_bytes"] for c in outside if c["id"].startswith(ENCODER)}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_weighs_what_vllm_builds(name, live):
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def compare(data):
        case = data.draw(ENCODERS[name])
        config, engine = as_an_engine_takes_it(case)
        found = weight_parts_of(encoder_of(case["model"], config, engine))
        assert found == encoder_parts(live.build(case)), case

    compare()


NORMED = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}


@pytest.mark.parametrize(
    "norm",
    [
        NORMED,
        NORMED | {"do_normalize": False},
        NORMED | {"do_normalize": False, "do_rescale": False},
        {"do_rescale": True},
        {"image_mean": [0, 0, 0], "image_std": [1, 1, 1], "do_rescale": False},
    ],
)
@pytest.mark.parametrize("device", [True, False])
def test_norms_of_pixels_on_the_device_are_weights(norm, device, live, tmp_path):
    model = tiny_model("qwen3.5-vl")
    folder = build(model, tmp_path)
    place = folder / "preprocessor_config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | norm), encoding="utf-8")
    asked = engine_arguments(model, folder, {"mm_device_do_normalize": device})
    case = {"model": str(folder), "settings": asked}
    config, engine = as_an_engine_takes_it(case)
    assert weight_parts_of(encoder_of("qwen", config, engine)) == encoder_parts(live.build(case))
