"""Media of the true-size models: what items become and take on the host, against the real processors."""

import pytest

from support.media_cases import FULL_CASES
from support.static_media import differing_items, run_processors, static_encoder

pytestmark = pytest.mark.timeout(900)
each_model = pytest.mark.parametrize("name", FULL_CASES)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    return run_processors(FULL_CASES, tmp_path_factory.mktemp("media") / "answer")


@each_model
def test_items_become_what_the_processor_makes_of_them(name, answers):
    assert differing_items(FULL_CASES[name], answers[name]) == {}


@each_model
def test_the_largest_item_has_the_rows_that_vllm_takes_for_it(name, answers):
    encoder, engine = static_encoder(FULL_CASES[name])
    largest = encoder.rules.largest_rows(engine.max_model_len)
    expected = answers[name]["largest"]
    assert {kind: largest[kind] for kind in expected} == expected
