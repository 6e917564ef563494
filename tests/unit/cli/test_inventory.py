"""`vstate inventory` as somebody types it."""

import json

import pytest

from support.command_line import in_this_process
from vstate.inventory.profiles import PROFILES

KEYS = {
    "model",
    "source",
    "profile",
    "evidence",
    "tensor_parallel_size",
    "settings",
    "assumed",
    "components",
    "groups",
    "capacity",
    "minimum_request",
    "requests",
    "max_num_seqs",
    "fits",
    "verdict",
    "without_draft",
}


@pytest.fixture
def inventory(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    return in_this_process(capfd, monkeypatch, "inventory")


def test_a_model_in_one_screen(inventory):
    done = inventory("tiny/qwen3")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("tiny/qwen3 on cpu (compared with the engine's)")
    assert "a prompt of 12 tokens takes whole blocks, at least one in each of one block table" in done.stdout
    assert len(lines) <= 40


def test_capacity_can_be_recomputed_from_what_is_shown(inventory):
    report = json.loads(inventory("tiny/qwen3", "--json", "--memory", "10MiB", "--length", "300").stdout)
    assert set(report) == KEYS
    (pool,) = report["capacity"]
    assert pool["total_bytes"] == pool["num_blocks"] * pool["block_bytes"]
    assert pool["total_bytes"] <= 10 * 2**20 < pool["total_bytes"] + pool["block_bytes"]
    assert pool["usable_blocks"] == pool["num_blocks"] - 1
    for request in [report["minimum_request"], *report["requests"]]:
        assert request["total_blocks"] == sum(request["blocks"])
        assert request["charged_bytes"] == request["total_blocks"] * pool["block_bytes"]
        assert request["at_once"] == pool["usable_blocks"] // request["total_blocks"]
        assert request["pool_share"] == pytest.approx(request["total_blocks"] / pool["usable_blocks"])
    (group,) = report["groups"]
    # 300 tokens and none after the first sampled one.
    assert report["requests"][0]["blocks"] == [-(-300 // group["block_tokens"])]


def test_more_sequences_than_fit_is_exit_code_1(inventory):
    done = inventory("tiny/qwen3", "--memory", "1MiB", "--max-num-seqs", "8")
    assert done.returncode == 1
    assert "max_num_seqs 8 does not fit: each takes 1 block at least, 7 at once" in done.stdout


def test_options_change_what_they_say(inventory):
    def shown(*options):
        return json.loads(inventory("tiny/qwen3", "--json", *options).stdout)

    plain, halved = shown(), shown("--kv-cache-dtype", "fp8")
    assert 2 * halved["capacity"][0]["block_bytes"] == plain["capacity"][0]["block_bytes"]
    assert shown("--block-size", "64")["groups"][0]["block_tokens"] == 64
    assert shown("--context", "512")["settings"]["max_model_len_tokens"] == 512
    assert shown("--no-prefix-caching")["settings"]["prefix_caching"] is False
    assert 2 * shown("--tensor-parallel", "2")["capacity"][0]["block_bytes"] == plain["capacity"][0]["block_bytes"]
    assert shown("--profile", "cuda-hopper")["evidence"] == "assumed, never run"
    assert shown("--set", "async_scheduling=true")["settings"]["max_in_flight_tokens"] == 512


def test_layers_are_for_the_asking(inventory):
    report = json.loads(inventory("tiny/qwen3", "--json", "--layers").stdout)
    assert [row["layer"] for row in report["layers"]] == [f"model.layers.{n}.self_attn.attn" for n in range(4)]
    assert "model.layers.3.self_attn.attn" in inventory("tiny/qwen3", "--layers").stdout


def test_a_model_id_is_looked_for_in_the_cache(inventory, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    done = inventory("someone/model")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"someone/model is not in the local cache {tmp_path}" in done.stderr
    snapshot = tmp_path / "models--someone--model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "vocab_size": 100,
        "max_position_embeddings": 4096,
        "torch_dtype": "float16",
    }
    (snapshot / "config.json").write_text(json.dumps(config))
    report = json.loads(inventory("someone/model", "--json").stdout)
    assert report["profile"] == "cuda-hopper"
    assert any("h100" in line for line in report["assumed"])
    assert report["settings"]["dtype"] == "float16"


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (("nope",), "unknown model nope"),
        (("tiny/nope",), "nope"),
        (("tiny/qwen3", "--profile", "abacus"), "unknown platform profile"),
        (("tiny/qwen3", "--memory", "lots"), "lots is no size"),
        (("tiny/qwen3", "--device", "abacus"), "unknown device abacus"),
        (("tiny/qwen3", "--set", "block_sise=64"), "no state depends on it"),
        (("tiny/qwen3", "--set", "block_size=many"), "block_size"),
        (("tiny/qwen3", "--spec", "mtp:2"), "has no native draft"),
        (("tiny/qwen3", "--spec", "guess"), "is none of"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(inventory, arguments, refusal):
    done = inventory(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert refusal in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_a_folder_without_a_configuration(inventory, tmp_path):
    assert "holds no config.json" in inventory(str(tmp_path)).stderr


def test_the_profiles_that_help_names_are_there():
    assert {"cpu", "cpu-avx512_bf16", "cuda-hopper"} <= set(PROFILES)


def test_a_run_is_read(inventory, sample_run):
    report = json.loads(inventory(sample_run, "--json").stdout)
    assert report["source"] == "run"
    assert report["capacity"]
    assert inventory(sample_run, "--memory", "1GiB").returncode == 2


@pytest.fixture
def sample_run():
    from importlib.resources import files

    return files("vstate") / "sample"
