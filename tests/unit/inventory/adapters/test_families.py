"""What a family does not know it refuses, and names."""

import json

import pytest

from vstate.inventory.adapters.registry import adapters
from vstate.inventory.profiles import find_profile
from vstate.inventory.serving import Drafting, ServingSettings
from vstate.inventory.state_inventory import StateInventory
from vstate.schemas.errors import VstateError
from vstate.tracer.models.files import package_text

CPU = find_profile("cpu")
TINY = (
    "qwen3", "gemma3", "gpt-oss", "mimo-v2", "lfm2-moe", "qwen3-next", "qwen3.5", "nemotron-h", "step-3.7",
    "gemma3-mm", "lfm2-vl", "qwen3.5-vl", "mimo-omni", "nemotron-omni",
)  # fmt: skip
TEXT_PARTS = ("text_config", "llm_config")


def tiny(name):
    return json.loads(package_text("tiny", f"{name}.json"))


def worked_out(config, **settings):
    said = {"num_gpu_blocks_override": 100, "dtype": "bfloat16"} | settings
    return StateInventory.from_config(config, ServingSettings(**said), CPU)


def text_of(config):
    return next((config[part] for part in TEXT_PARTS if part in config), config)


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("field", ["hidden_size", "vocab_size", "max_position_embeddings", "num_attention_heads"])
def test_a_missing_field_is_named(name, field):
    config = tiny(name)
    del text_of(config)[field]
    with pytest.raises(VstateError, match=rf"the configuration has no .*{field}"):
        worked_out(config)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("gemma3", "layer_types"),
        ("lfm2-moe", "layer_types"),
        ("qwen3-next", "layer_types"),
        ("nemotron-h", "layers_block_type"),
        ("mimo-v2", "hybrid_layer_pattern"),
        ("step-3.7", "layer_types"),
    ],
)
def test_an_unknown_layer_is_named_with_its_number(name, field):
    config = tiny(name)
    text_of(config)[field][1] = "hyena"
    with pytest.raises(VstateError, match="layer 1 is of the unknown type 'hyena'"):
        worked_out(config)


@pytest.mark.parametrize("name", TINY)
def test_ranks_that_cannot_share_a_model_are_refused(name):
    with pytest.raises(VstateError, match="cannot be shared by 3"):
        worked_out(tiny(name), tensor_parallel_size=3)


@pytest.mark.parametrize("name", ["qwen3", "gemma3", "lfm2-moe", "gpt-oss"])
def test_a_model_without_a_native_draft_says_so(name):
    with pytest.raises(VstateError, match="has no native draft"):
        worked_out(tiny(name), drafting=Drafting(method="mtp", tokens=1))


@pytest.mark.parametrize(
    ("config", "refusal"),
    [
        (None, "need a model"),
        ({"architectures": ["Nobody"]}, "the EAGLE3 head Nobody is not known"),
    ],
)
def test_a_head_that_is_not_known_is_refused(config, refusal):
    with pytest.raises(VstateError, match=refusal):
        worked_out(tiny("qwen3"), drafting=Drafting(method="eagle3", tokens=2, config=config))


def test_a_packed_latent_cache_is_refused():
    config = json.loads(package_text("full", "deepseek-v3.2.json"))
    with pytest.raises(VstateError, match="a latent cache of type fp8 has rows of its own layout"):
        worked_out(config, kv_cache_dtype="fp8")


def test_groups_of_heads_that_cannot_be_shared_are_refused():
    config = tiny("nemotron-h") | {"mamba_num_heads": 8, "n_groups": 2, "num_attention_heads": 8}
    with pytest.raises(VstateError, match="2 groups of heads cannot be shared by 4 ranks"):
        worked_out(config, tensor_parallel_size=4)


def test_states_are_never_expressed_as_pages_of_tokens():
    """A state's bytes do not follow from the tokens of its block."""
    for name in ("lfm2-moe", "qwen3-next", "nemotron-h"):
        short, long = (worked_out(tiny(name), enable_prefix_caching=False, max_model_len=n) for n in (1024, 8192))
        kept = [[c for c in found.components if c.unit == "request"] for found in (short, long)]
        assert kept[0]
        assert [c.useful_bytes_per_unit for c in kept[0]] == [c.useful_bytes_per_unit for c in kept[1]]


def test_each_architecture_has_one_adapter_with_a_version():
    found = adapters()
    assert len(found) > 20
    assert all(adapter.version >= 1 and adapter.name for adapter in found.values())
