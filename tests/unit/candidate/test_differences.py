"""What a configuration says otherwise than the true-size models."""

import copy
import json

import pytest

from vstate.candidate.differences import compare, nearest_model
from vstate.tracer.models.evidence import leaf_values, leaves
from vstate.tracer.models.full_models import FULL_MODELS, full_model

MODELS = pytest.mark.parametrize("model", FULL_MODELS.values(), ids=FULL_MODELS)


@MODELS
def test_values_have_the_paths_of_the_evidence(model):
    assert [path for path, _ in leaf_values(model.config)] == list(leaves(model.config))


@MODELS
def test_a_model_is_nearest_to_itself(model):
    nearest = nearest_model(json.loads(model.config_text))
    assert (nearest.model, nearest.differences) == (f"full/{model.name}", ())
    assumed = {path for path in leaves(model.config) if model.evidence.rows_of(path)[0].status == "assumed"}
    assert set(nearest.assumed_and_equal) == assumed - {"transformers_version"}


def test_an_unknown_architecture_is_near_nothing():
    assert nearest_model({"architectures": ["Other"]}) is None
    assert nearest_model({}) is None


def test_a_changed_field_is_named_with_both_values_and_the_evidence_of_ours():
    model = full_model("lfm2.5-8b-a1b")
    changed = nearest_model(model.config | {"num_experts_per_tok": 3})
    (difference,) = changed.differences
    assert (difference.path, difference.here) == ("num_experts_per_tok", "3")
    assert difference.there == json.dumps(model.config["num_experts_per_tok"])
    assert difference.evidence == model.evidence.rows_of("num_experts_per_tok")[0].status


def test_a_field_that_only_one_has_is_a_difference():
    model = full_model("lfm2.5-8b-a1b")
    config = model.config | {"new": None}
    del config["num_experts_per_tok"]
    found = {d.path: (d.here, d.there, d.evidence) for d in nearest_model(config).differences}
    there = json.dumps(model.config["num_experts_per_tok"])
    evidence = model.evidence.rows_of("num_experts_per_tok")[0].status
    assert found == {"new": ("null", "", None), "num_experts_per_tok": ("", there, evidence)}


def test_the_program_that_saved_it_does_not_count():
    model = full_model("lfm2.5-8b-a1b")
    assert nearest_model(model.config | {"transformers_version": "0", "_name_or_path": "x"}).differences == ()


@MODELS
def test_of_two_of_one_architecture_the_nearer_is_chosen(model):
    config = copy.deepcopy(model.config) | {"new_one": 1}
    others = [other for other in FULL_MODELS.values() if other.config["architectures"] == config["architectures"]]
    nearest = nearest_model(config)
    assert nearest.model == f"full/{model.name}"
    assert all(len(compare(config, other).differences) >= len(nearest.differences) for other in others)


@MODELS
def test_every_field_counts_once(model):
    config = {name: value for name, value in model.config.items() if name != "vocab_size"} | {"new": 1}
    nearest = compare(config, model)
    paths = {path for path, _ in leaf_values(config)} | {path for path, _ in leaf_values(model.config)}
    assert nearest.equal_fields + len(nearest.differences) == len(paths - {"transformers_version"})
