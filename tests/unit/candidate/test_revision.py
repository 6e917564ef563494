"""What identifies the checkpoint in a folder."""

import hashlib
import json
import subprocess

import pytest

from vstate.candidate.revision import folder_revision, quantization
from vstate.schemas.errors import VstateError
from vstate.tracer.models.full_model import configuration_digest
from vstate.tracer.models.full_models import FULL_MODELS

CONFIG = {"architectures": ["SomeForCausalLM"], "hidden_size": 8, "layer_types": ["a", "b"]}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def model_folder(folder, config=CONFIG, **files):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name, text in files.items():
        (folder / f"{name}.json").write_text(text)
    return folder


def git(folder, *arguments):
    who = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", folder, *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def work_tree(tmp_path):
    folder = model_folder(tmp_path / "tree" / "model", tokenizer="{}")
    git(tmp_path / "tree", "init", "-q")
    git(tmp_path / "tree", "add", ".")
    git(tmp_path / "tree", "commit", "-q", "-m", "model")
    return folder


def test_a_hub_cache_names_commit_and_repository(tmp_path):
    folder = model_folder(tmp_path / "hub" / "models--some--model-1" / "snapshots" / COMMIT)
    commit = folder_revision(folder).commit
    assert (commit.commit, commit.found, commit.repository, commit.dirty) == (COMMIT, "hub cache", "some/model-1", None)


def test_a_link_to_a_snapshot_is_that_snapshot(tmp_path):
    folder = model_folder(tmp_path / "hub" / "models--some--model" / "snapshots" / COMMIT)
    (tmp_path / "link").symlink_to(folder)
    assert folder_revision(tmp_path / "link").commit.commit == COMMIT


@pytest.mark.parametrize("name", [COMMIT[:-1], COMMIT + "0", COMMIT.replace("a", "g"), "main"])
def test_a_snapshot_that_no_commit_names_has_none(tmp_path, name):
    assert folder_revision(model_folder(tmp_path / "snapshots" / name)).commit is None


def test_a_clean_work_tree_has_its_head(work_tree):
    commit = folder_revision(work_tree).commit
    assert (commit.commit, commit.found, commit.dirty) == (git(work_tree, "rev-parse", "HEAD"), "git", False)


@pytest.mark.parametrize("name", ["config.json", "new.json"])
def test_a_changed_or_new_file_makes_it_dirty(work_tree, name):
    (work_tree / name).write_text(json.dumps(CONFIG | {"hidden_size": 9}))
    assert folder_revision(work_tree).commit.dirty is True


def test_a_change_elsewhere_in_the_work_tree_does_not(work_tree):
    (work_tree.parent / "other").write_text("x")
    assert folder_revision(work_tree).commit.dirty is False


def test_a_work_tree_that_does_not_track_the_model_is_not_its_commit(work_tree):
    (work_tree.parent / ".gitignore").write_text("ignored\n")
    assert folder_revision(model_folder(work_tree.parent / "ignored")).commit is None


def test_a_plain_folder_has_no_commit(tmp_path):
    assert folder_revision(model_folder(tmp_path / "plain")).commit is None


def test_a_work_tree_in_the_environment_is_not_asked(work_tree, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(work_tree.parent / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(work_tree.parent))
    assert folder_revision(model_folder(tmp_path / "plain")).commit is None


def test_asking_git_leaves_its_index_alone(work_tree):
    index = work_tree.parent / ".git" / "index"
    (work_tree / "config.json").write_text(json.dumps(CONFIG))
    before = index.read_bytes()
    folder_revision(work_tree)
    assert index.read_bytes() == before


def test_without_git_there_is_no_commit(work_tree, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert folder_revision(work_tree).commit is None


def test_order_and_spaces_do_not_change_the_digest(tmp_path):
    one = model_folder(tmp_path / "one")
    two = model_folder(tmp_path / "two")
    (two / "config.json").write_text(json.dumps(dict(reversed(CONFIG.items())), indent=4))
    assert folder_revision(one).configuration_digest == folder_revision(two).configuration_digest


@pytest.mark.parametrize("field", CONFIG)
def test_each_field_changes_the_digest(field):
    assert configuration_digest(CONFIG | {field: "other"}) != configuration_digest(CONFIG)


@pytest.mark.parametrize("model", FULL_MODELS.values(), ids=FULL_MODELS)
def test_the_digest_has_the_form_of_the_true_size_models(model):
    assert configuration_digest(json.loads(model.config_text)) == model.configuration_digest


def test_tokenizer_processor_index_and_code_are_digested_and_weights_are_not(tmp_path):
    folder = model_folder(tmp_path, tokenizer="{}", preprocessor_config="[1]")
    for name in ("model.safetensors", "README.md", "modeling_x.py", "model.safetensors.index.json", "tokenizer.model"):
        (folder / name).write_bytes(name.encode())
    digests = folder_revision(folder).files
    assert list(digests) == [
        "model.safetensors.index.json",
        "modeling_x.py",
        "preprocessor_config.json",
        "tokenizer.json",
        "tokenizer.model",
    ]
    assert digests["preprocessor_config.json"] == hashlib.sha256(b"[1]").hexdigest()


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({}, ""),
        ({"quantization_config": {"quant_method": "fp8", "bits": 8}}, "fp8"),
        ({"text_config": {"quantization_config": {"quant_method": "mxfp4"}}}, "mxfp4"),
        ({"quantization_config": {"bits": 8}}, "unnamed"),
    ],
)
def test_quantization_is_named(config, name):
    assert quantization(config) == name


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "holds no config.json"), ("{", "is not JSON"), ("[]", "holds no fields")],
)
def test_what_is_no_model_folder_is_refused(tmp_path, text, words):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(VstateError, match=words):
        folder_revision(tmp_path)
