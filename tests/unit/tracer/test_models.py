"""The builders of tiny models, without vLLM."""

import ast
import json
from importlib import resources

import pytest

from vstate.schemas.errors import VstateError
from vstate.schemas.workload import MediaItem, WorkloadRequest
from vstate.tracer.models.model import TinyModel
from vstate.tracer.models.text import NO_PRE_COPY
from vstate.tracer.models.tiny import TINY_MODELS, build, engine_arguments, tiny_model
from vstate.tracer.workloads.media import engine_media, media_array
from vstate.tracer.workloads.prompts import PromptSource
from vstate.tracer.workloads.smoke import smoke

MULTIMODAL = [model for model in TINY_MODELS.values() if model.media]


def read(path):
    return json.loads(path.read_text())


@pytest.mark.parametrize("model", TINY_MODELS.values(), ids=lambda model: model.name)
def test_each_model_is_built_from_the_package_alone(model, tmp_path):
    folder = build(model, tmp_path)
    config = read(folder / "config.json")
    assert config["architectures"]
    assert config.get("text_config", config)["vocab_size"] == 1024
    arguments = engine_arguments(model, folder, {"max_num_seqs": 4})
    assert arguments["max_num_seqs"] == 4, "what the caller sets wins"
    draft = arguments.get("speculative_config", {})
    assert bool(draft) == bool(model.draft)
    if "model" in draft:
        assert read(folder / "draft" / "config.json")["architectures"]
        assert draft["model"] == str(folder / "draft")


@pytest.mark.parametrize("model", MULTIMODAL, ids=lambda model: model.name)
def test_placeholders_are_words_of_the_tokenizer_and_no_text(model, tmp_path):
    folder = build(model, tmp_path)
    tokenizer = read(folder / "tokenizer.json")
    words = tokenizer["model"]["vocab"]
    assert sorted(words.values()) == list(range(1024))
    special = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    assert all(words[content] == token for token, content in special.items())
    assert set(read(folder / "tokenizer_config.json")["extra_special_tokens"].values()) <= set(special.values())
    for tokens in model.media.placeholders.values():
        assert all(token in special and token >= model.media.text_vocabulary for token in tokens)


@pytest.mark.parametrize("model", MULTIMODAL, ids=lambda model: model.name)
def test_a_configuration_names_the_tokens_that_stand_for_its_media(model, tmp_path):
    config = read(build(model, tmp_path) / "config.json")
    named = {token for name, token in config.items() if name.endswith(("_token_id", "_token_index"))}
    assert named <= set(model.media.special_tokens)


def test_a_configuration_class_comes_with_the_model(tmp_path):
    for model in TINY_MODELS.values():
        if not model.configuration_module:
            continue
        folder = tmp_path / model.name
        folder.mkdir()
        reference = read(build(model, folder) / "config.json")["auto_map"]["AutoConfig"]
        module, _, name = reference.partition(".")
        classes = [n.name for n in ast.walk(ast.parse((folder / f"{module}.py").read_text())) if hasattr(n, "bases")]
        assert name in classes
        assert model.arguments["trust_remote_code"] is True


def test_every_configuration_in_the_package_is_used():
    files = {entry.name for entry in (resources.files("vstate.tracer.models") / "tiny").iterdir()}
    used = {model.config for model in TINY_MODELS.values()}
    used |= {model.draft.config for model in TINY_MODELS.values() if model.draft and model.draft.config}
    assert files == used


def test_what_the_engine_cannot_run_says_why(tmp_path):
    model = tiny_model("qwen3.5-vl-mtp")
    with pytest.raises(VstateError, match="has no CPU kernel") as error:
        engine_arguments(model, tmp_path, {"enable_prefix_caching": True})
    assert "\n" not in str(error.value)
    assert NO_PRE_COPY[1] is True


def test_an_unknown_model_names_the_known_ones():
    with pytest.raises(VstateError, match="tiny/qwen3.5-vl"):
        tiny_model("nothing")


IMAGE = {"kind": "image", "name": "cat", "width": 8, "height": 4}
SOUND = {"kind": "audio", "name": "cat", "seconds": 0.5}
VIDEO = {"kind": "video", "name": "cat", "width": 8, "height": 4, "frames": 3}


@pytest.mark.parametrize(
    ("item", "shape"), [(IMAGE, (4, 8, 3)), (SOUND, (8000,)), (VIDEO, (3, 4, 8, 3))], ids=lambda value: str(value)[:15]
)
def test_content_follows_from_kind_name_size_and_seed(item, shape):
    array = media_array(MediaItem.model_validate(item), 0)
    assert array.shape == shape
    assert (array == media_array(MediaItem.model_validate(item), 0)).all()
    for other, seed in ((item, 1), (item | {"name": "dog"}, 0)):
        assert (array != media_array(MediaItem.model_validate(other), seed)).any()


def test_media_come_in_the_form_that_vllm_takes():
    sound, rate = engine_media(MediaItem.model_validate(SOUND), 0)
    assert len(sound) == rate / 2
    frames, metadata = engine_media(MediaItem.model_validate(VIDEO), 0)
    assert metadata["total_num_frames"] == len(frames) == len(metadata["frames_indices"])


def request(*prompt):
    line = {"id": "a", "when": {"at_step": 0}, "prompt": prompt, "output": {"tokens": 1}}
    return WorkloadRequest.model_validate(line)


def test_placeholders_stand_where_media_do():
    source = PromptSource(0, 900, {"audio": (904, 906), "video": (907,)}, 128)
    text = {"name": "text", "length": {"tokens": 3}}
    asked = request({"media": SOUND}, text, {"media": SOUND}, {"media": VIDEO}, text)
    prompt = source.prompt(asked)
    words = source.token_ids(request(text))
    assert prompt["prompt_token_ids"] == [904, 906, *words, 904, 906, 907, *words]
    assert {kind: len(items) for kind, items in prompt["multi_modal_data"].items()} == {"audio": 2, "video": 1}
    assert "multi_modal_data" not in source.prompt(request(text))


@pytest.mark.parametrize(("placeholders", "told"), [({}, "takes no media"), ({"audio": (9,)}, "takes only audio")])
def test_media_that_a_model_does_not_take(placeholders, told):
    with pytest.raises(VstateError, match=told) as error:
        PromptSource(0, 900, placeholders, 128).token_ids(request({"media": IMAGE}))
    assert "\n" not in str(error.value)


def test_smoke_has_repeated_and_different_media_of_each_kind():
    items = [
        part.media
        for line in smoke(("image", "audio"))
        if isinstance(line, WorkloadRequest)
        for part in line.prompt
        if hasattr(part, "media")
    ]
    for kind in ("image", "audio"):
        names = [item.name for item in items if item.kind == kind]
        assert names.count("cat") > 3
        assert len(set(names)) > 5
    assert len(smoke()) == 28
    assert len(smoke(("image",))) > 28


def test_models_have_distinct_names():
    assert all(isinstance(model, TinyModel) and model.name == name for name, model in TINY_MODELS.items())
