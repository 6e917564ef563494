"""A short convolution replayed by every minor: the CPU kernels of some pack a width of 4 only."""

import json
from importlib import resources

import pytest

from support.runs import make_run

pytestmark = pytest.mark.engine

SETTINGS = (
    "load_format=dummy",
    "enforce_eager=true",
    "dtype=bfloat16",
    "skip_tokenizer_init=true",
    "enable_prefix_caching=true",
    "max_num_seqs=8",
    "max_model_len=1024",
    "max_num_batched_tokens=256",
    "num_gpu_blocks_override=30",
)


def test_a_convolution_of_width_4_is_replayed(tmp_path):
    config = json.loads((resources.files("vstate.tracer.models") / "tiny" / "lfm2-moe.json").read_text())
    assert config["conv_L_cache"] == 3, "with another width this test may go: tiny/lfm2-moe runs everywhere"
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config | {"conv_L_cache": 4}))
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    run = make_run(tmp_path / "run", "--model", model, *settings)
    assert run.summary["verdict"] == "clean"
    assert run.summary["dropped"] == 0
    assert run.summary["steps"] > 50
    classes = {component.state_class.value for group in run.process.groups for component in group.components}
    assert "conv" in classes
    assert all(estimate["undercount_requests"] == 0 for estimate in run.estimates("vstate", "life"))
