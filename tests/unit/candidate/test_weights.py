"""Which weights lie in a folder."""

import json

import pytest

from vstate.candidate.weights import folder_weights
from vstate.schemas.errors import VstateError

SHARDS = [f"model-{number:05d}-of-00003.safetensors" for number in (1, 2, 3)]


def with_files(folder, *names):
    for size, name in enumerate(names, 1):
        (folder / name).write_bytes(b"w" * size)
    return folder


def with_index(folder, names):
    weight_map = {f"layer.{number}": name for number, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_no_weights(tmp_path):
    weights = folder_weights(with_files(tmp_path, "config.json", "training_args.bin"))
    assert (weights.files, weights.missing, weights.complete) == ({}, (), False)


def test_one_file_is_whole(tmp_path):
    weights = folder_weights(with_files(tmp_path, "model.safetensors"))
    assert (weights.files, weights.total_bytes, weights.complete) == ({"model.safetensors": 1}, 1, True)


def test_all_shards_of_the_index(tmp_path):
    with_index(with_files(tmp_path, *SHARDS), SHARDS)
    weights = folder_weights(tmp_path)
    assert (weights.total_bytes, weights.missing, weights.complete) == (6, (), True)


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("absent", SHARDS)
def test_a_missing_shard_is_named(tmp_path, absent, indexed):
    with_files(tmp_path, *(name for name in SHARDS if name != absent))
    if indexed:
        with_index(tmp_path, SHARDS)
    weights = folder_weights(tmp_path)
    assert (weights.missing, weights.complete) == ((absent,), False)


def test_an_index_alone_tells_what_is_missing(tmp_path):
    with_index(tmp_path, ["a.safetensors", "b.safetensors"])
    assert folder_weights(tmp_path).missing == ("a.safetensors", "b.safetensors")


def test_a_pointer_in_the_place_of_a_file_is_missing(tmp_path):
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    weights = folder_weights(tmp_path)
    assert (weights.files, weights.missing) == ({}, ("model.safetensors",))


def test_a_link_to_nothing_is_missing(tmp_path):
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "blob")
    assert folder_weights(tmp_path).missing == ("model.safetensors",)


def test_safetensors_stand_for_the_older_format_beside_them(tmp_path):
    weights = folder_weights(with_files(tmp_path, "model.safetensors", "pytorch_model-00001-of-00002.bin"))
    assert (list(weights.files), weights.complete) == (["model.safetensors"], True)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": 1}'])
def test_a_damaged_index_is_an_error(tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(VstateError, match="is no index of weights"):
        folder_weights(tmp_path)
