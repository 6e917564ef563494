"""`vstate candidate verify` with the real engine core: a folder near a true-size model, a tiny one, one refused."""

import json

import pytest

from support.runs import forked_vstate
from vstate.tracer.models.full_models import build_full, full_model

MODEL = full_model("lfm2.5-8b-a1b")
PARAMETER_BYTES = 2
PUBLISHED_WITHIN = 0.03
"""Publishers round the number of parameters."""


def verified(*arguments):
    done = forked_vstate("candidate", "verify", "--json", *arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def changed_folder(tmp_path_factory):
    """A true-size model's folder, with one field changed."""
    folder = build_full(MODEL, tmp_path_factory.mktemp("checkpoint"))
    config = MODEL.config | {"num_experts_per_tok": MODEL.config["num_experts_per_tok"] - 1}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_folder_tells_its_difference_and_has_backend_evidence(changed_folder, tmp_path):
    found = verified(changed_folder, "--out", tmp_path / "runs")
    nearest = found["revision"]["nearest"]
    assert nearest["model"] == f"full/{MODEL.name}"
    assert [difference["path"] for difference in nearest["differences"]] == ["num_experts_per_tok"]
    backend = found["backend"]
    assert (backend["status"], backend["books"]["verdict"]) == ("ok", "clean")
    assert backend["books"]["undercount_blocks"] == 0
    build = backend["build"]
    layers = MODEL.config["layer_types"]
    assert sum(build["backends"].values()) == sum(group["layers"] for group in build["groups"]) == len(layers)
    full_kv = [group for group in build["groups"] if group["state_classes"] == ["full_kv"]]
    assert sum(group["layers"] for group in full_kv) == layers.count("full_attention")
    published = MODEL.parameters.published * PARAMETER_BYTES
    assert build["weight_bytes"] == pytest.approx(published, rel=PUBLISHED_WITHIN)
    assert (tmp_path / "runs" / "backend" / "run.json").exists()
    assert found["correctness"]["status"] == found["benchmark"]["status"] == "not run"
    assert f"no weights in {changed_folder}" in found["correctness"]["sentence"]


def test_a_tiny_model_runs_all_but_the_benchmark():
    found = verified("tiny/qwen3")
    assert [found[name]["status"] for name in ("backend", "correctness", "benchmark")] == ["ok", "ok", "not run"]
    assert found["correctness"]["books"]["finished"] == found["backend"]["books"]["finished"] > 0


def test_what_vllm_refuses_is_a_line_of_the_report_and_exit_code_1(tmp_path):
    config = {"architectures": ["NoSuchForCausalLM"], "model_type": "no_such", "auto_map": {"AutoConfig": "a.B"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = forked_vstate("candidate", "verify", "--json", tmp_path)
    assert done.returncode == 1, done.stderr
    backend = json.loads(done.stdout)["backend"]
    assert backend["status"] == "failed"
    assert "--trust-remote-code" in backend["sentence"]
    assert "\n" not in backend["sentence"]
