"""The true-size models as data: configurations, their evidence, and what is built from them, without vLLM."""

import ast
import hashlib
import json
from importlib import resources

import pytest
from pydantic import ValidationError

from vstate.schemas.errors import VstateError
from vstate.tracer.engines.step_time import DEVICES
from vstate.tracer.models.evidence import FieldEvidence, ModelEvidence, leaves
from vstate.tracer.models.full_models import FULL_MODELS, build_full, full_arguments, full_model

pytestmark = pytest.mark.long

MODELS = list(FULL_MODELS.values())
each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
with_media = pytest.mark.parametrize("model", [model for model in MODELS if model.media], ids=lambda model: model.name)


def read(path):
    return json.loads(path.read_text())


@each_model
def test_every_field_has_exactly_one_most_specific_row(model):
    found = {leaf: len(model.evidence.rows_of(leaf)) for leaf in model.fields()}
    assert {leaf: count for leaf, count in found.items() if count != 1} == {}


@each_model
def test_every_row_says_something_about_a_field(model):
    used = {row.path for leaf in model.fields() for row in model.evidence.rows_of(leaf)}
    assert {row.path for row in model.evidence.fields} - used == set()


@each_model
def test_rows_name_sources_that_are_there_and_every_source_is_named(model):
    named = {row.source for row in model.evidence.fields}
    assert named == set(model.evidence.sources)


@each_model
def test_no_row_covers_a_whole_configuration(model):
    assert all(row.path.strip("*.") for row in model.evidence.fields)


@each_model
def test_what_is_assumed_says_why(model):
    assert all(row.note for row in model.evidence.fields if row.status == "assumed")


def evidence(*paths):
    return ModelEvidence.model_validate(
        {
            "parameters": {"published": 1, "source": "a card"},
            "deployment": {"tensor_parallel_size": 1, "device": "a device"},
            "sources": {"file": "a file"},
            "fields": [{"path": path, "source": "file", "status": "sourced"} for path in paths],
        }
    )


CONFIG = {"size": 1, "layers": ["a", "b"], "text": {"heads": 2, "rope": {"theta": 3}}, "many": [{"name": "x"}, {}]}


def test_leaves_are_plain_values_and_lists_of_them():
    assert list(leaves(CONFIG)) == ["size", "layers", "text.heads", "text.rope.theta", "many.0.name", "many.1"]


@pytest.mark.parametrize(
    ("path", "matched"),
    [
        ("size", {"size"}),
        ("text.*", {"text.heads", "text.rope.theta"}),
        ("text.h*", {"text.heads"}),
        ("*.heads", {"text.heads"}),
        ("many.*.name", {"many.0.name"}),
        ("te", set()),
        ("text", set()),
        ("s.ze", set()),
    ],
)
def test_a_row_matches_by_whole_keys(path, matched):
    row = FieldEvidence(path=path, source="file", status="sourced")
    assert {leaf for leaf in leaves(CONFIG) if row.matches(leaf)} == matched


def test_the_more_specific_row_speaks_and_equals_are_told():
    record = evidence("text.*", "text.rope.*", "s*ze", "siz*")
    assert [row.path for row in record.rows_of("text.heads")] == ["text.*"]
    assert [row.path for row in record.rows_of("text.rope.theta")] == ["text.rope.*"]
    assert len(record.rows_of("size")) == 2
    assert record.rows_of("layers") == []


def test_a_deployment_cannot_be_called_known():
    record = evidence().model_dump()
    record["deployment"]["status"] = "sourced"
    with pytest.raises(ValidationError):
        ModelEvidence.model_validate(record)


@each_model
def test_the_digest_is_of_values_and_not_of_their_writing(model):
    config = dict(reversed(json.loads(model.config_text).items()))
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":")).encode()
    assert model.configuration_digest == hashlib.sha256(canonical).hexdigest()
    assert len({m.configuration_digest for m in MODELS}) == len(MODELS)


@each_model
def test_each_model_is_built_from_the_package_alone(model, tmp_path):
    assert build_full(model, tmp_path) == tmp_path
    config = read(tmp_path / "config.json")
    assert config == model.config
    assert config["architectures"]
    assert "quantization_config" not in config
    arguments = full_arguments(model, tmp_path, {"max_num_seqs": 4})
    assert arguments["max_num_seqs"] == 4, "what the caller sets wins"
    assert arguments["max_model_len"] == model.text_config["max_position_embeddings"]
    assert arguments["skip_tokenizer_init"] is (model.media is None)
    draft = arguments.get("speculative_config")
    assert (draft and draft["num_speculative_tokens"]) == (model.draft and model.draft.tokens)


@with_media
def test_placeholders_are_words_of_the_tokenizer_and_no_text(model, tmp_path):
    build_full(model, tmp_path)
    tokenizer = read(tmp_path / "tokenizer.json")
    words = tokenizer["model"]["vocab"]
    assert sorted(words.values()) == list(range(model.text_config["vocab_size"]))
    special = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    assert all(words[content] == token for token, content in special.items())
    assert set(read(tmp_path / "tokenizer_config.json")["extra_special_tokens"].values()) <= set(special.values())
    for tokens in model.media.placeholders.values():
        assert all(token in special and token >= model.media.text_vocabulary for token in tokens)
    assert model.media.text_vocabulary > 0.9 * model.text_config["vocab_size"], "prompts use the whole vocabulary"


@with_media
def test_a_configuration_names_the_tokens_that_stand_for_its_media(model):
    named = {token for name, token in model.config.items() if name.endswith(("_token_id", "_token_index"))}
    text = {token for name, token in model.config.items() if name in ("eos_token_id", "pad_token_id", "bos_token_id")}
    assert named - text <= set(model.media.special_tokens)


@each_model
def test_a_configuration_class_comes_with_the_model(model, tmp_path):
    reference = read(build_full(model, tmp_path) / "config.json").get("auto_map", {}).get("AutoConfig", "")
    module, _, name = reference.partition(".")
    assert module == model.configuration_module
    if module:
        classes = [n.name for n in ast.walk(ast.parse((tmp_path / f"{module}.py").read_text())) if hasattr(n, "bases")]
        assert name in classes
        assert model.arguments["trust_remote_code"] is True


@each_model
def test_the_assumed_deployment_holds_the_weights(model):
    """Two bytes a parameter; a tenth of the memory at least is left for state."""
    memory = model.deployment.tensor_parallel_size * DEVICES[model.deployment.device].memory_bytes
    assert 2 * model.parameters.published < 0.9 * memory


def test_every_file_in_the_package_is_used():
    files = {entry.name for entry in (resources.files("vstate.tracer.models") / "full").iterdir()}
    assert files == {f"{name}{end}" for name in FULL_MODELS for end in (".json", ".evidence.json")}


def test_an_unknown_model_names_the_known_ones():
    with pytest.raises(VstateError, match=r"unknown model full/nothing; .*full/lfm2\.5-8b-a1b") as error:
        full_model("nothing")
    assert "\n" not in str(error.value)


def test_models_have_distinct_names():
    assert all(model.name == name for name, model in FULL_MODELS.items())
