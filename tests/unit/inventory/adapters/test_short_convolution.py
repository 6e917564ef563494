"""LFM2: tensors of the tiny model by hand, published figures, what vLLM does beside the configuration."""

import copy
import json
from math import prod

import pytest

from vstate.inventory.adapters.registry import find_adapter
from vstate.inventory.profiles import find_profile
from vstate.inventory.serving import Drafting, ServingSettings
from vstate.schemas.errors import VstateError
from vstate.tracer.models.files import package_text
from vstate.tracer.models.full_models import full_model

CPU = find_profile("cpu")
FLOAT, HALF = 4, 2
SCALES = 4 * FLOAT
"""A layer of attention has four scales of its cache."""
DENSE = {
    "architectures": ["Lfm2ForCausalLM"],
    "model_type": "lfm2",
    "conv_dim": 128,
    "block_dim": 128,
    "block_auto_adjust_ff_dim": False,
}
EXPERTS = ("num_dense_layers", "num_experts", "moe_intermediate_size")


def tiny(name="lfm2-moe", **changes):
    config = json.loads(package_text("tiny", f"{name}.json")) | changes
    return {field: value for field, value in config.items() if value is not None}


def plan(config, **settings):
    said = ServingSettings(**{"dtype": "bfloat16"} | settings)
    return find_adapter(config).plan(config, said, CPU)


def weights(config, **settings):
    return next(part.bytes for part in plan(config, **settings).weights if not part.part)


def dense(inner=256, width=128):
    return HALF * (width * 2 * inner + inner * width)


def experts():
    """4 experts of 64, a router and a float32 correction for each."""
    return HALF * (4 * (128 * 128 + 64 * 128) + 4 * 128) + FLOAT * 4


def whole(feed_forwards):
    """4 layers of convolution, 2 of attention, in each two norms; the embedding, which is the head; a norm; angles."""
    convolution = HALF * sum(map(prod, [(3, 128), (128, 384), (128, 128)]))
    attention = HALF * sum(map(prod, [(128, 128), (128, 64), (128, 64), (128, 128), (32,), (32,)])) + SCALES
    layers = 4 * convolution + 2 * attention + sum(feed_forwards) + 6 * HALF * 2 * 128
    return layers + HALF * (1024 * 128 + 128) + HALF * 8192 * 32


def test_the_tiny_models_are_the_sum_of_their_tensors():
    assert weights(tiny()) == whole(2 * [dense()] + 4 * [experts()])
    assert weights(tiny(**DENSE)) == whole(6 * [dense()])


def test_published_parameters():
    """LFM2.5-8B-A1B: 8.468 billion parameters, 16.94 GB, measured on a meta build apart from this repository."""
    found = weights(full_model("lfm2.5-8b-a1b").config)
    elements = (found - HALF * 128_000 * 64) / HALF
    assert f"{elements / 1e9:.3f}" == "8.468"
    assert f"{HALF * elements / 1e9:.2f}" == "16.94"


LARGER = {"hidden_size": 2048, "num_hidden_layers": 40, "num_dense_layers": 2, "num_experts": 64,
          "moe_intermediate_size": 1536, "layer_types": (["conv"] * 3 + ["full_attention"]) * 10,
          "num_attention_heads": 32, "num_key_value_heads": 8}  # fmt: skip
"""LFM2-24B-A2B as far as its state goes: 30 layers of convolution, 10 of attention."""


@pytest.mark.parametrize(
    ("config", "token", "state"),
    [(full_model("lfm2.5-8b-a1b").config, 12_288, 147_456), (tiny(**LARGER), 20_480, 245_760)],
)
def test_published_bytes_of_a_token_and_of_a_state(config, token, state):
    found = plan(config)
    assert sum(layer.token_bytes for layer in found.attention_layers) == token
    assert sum(layer.state_bytes for layer in found.state_layers) == state


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_ranks_do_not_share(ranks):
    """Norms, routers with their corrections, angles, scales, and biases after projections back."""
    config = tiny(num_key_value_heads=4, conv_bias=True)
    norms = 6 * 2 * 128 + 128 + 2 * 2 * 32
    alike = HALF * (norms + 4 * 4 * 128 + 8192 * 32 + 4 * 128) + FLOAT * 4 * 4 + 2 * SCALES
    assert ranks * weights(config, tensor_parallel_size=ranks) - weights(config) == (ranks - 1) * alike


def test_states_are_shared_and_widened_by_drafts():
    drafting = Drafting(method="ngram", tokens=2)
    for ranks in (1, 2, 4):
        layer = plan(tiny(), tensor_parallel_size=ranks, drafting=drafting).state_layers[0]
        assert [(part.shape, part.dtype) for part in layer.parts] == [((4, 128 // ranks), "bfloat16")]
    wider = plan(tiny(), mamba_cache_dtype="float32").state_layers[0]
    assert wider.state_bytes == 2 * 128 * FLOAT


def test_a_head_is_a_share_of_the_width_whatever_is_said():
    """Blocks are sized by the head that the configuration says, caches by the one that the layers have."""
    found = plan(tiny(head_dim=64))
    assert found.block_head_size == 64
    assert {layer.key_size for layer in found.attention_layers} == {32}
    assert weights(tiny(head_dim=64)) == weights(tiny())


def test_the_head_is_the_embedding_whatever_is_said():
    for config in (tiny(), tiny(**DENSE)):
        assert weights(config | {"tie_word_embeddings": False}) == weights(config)


def test_fields_that_add_weights():
    plain = weights(tiny())
    assert weights(tiny(conv_bias=True)) == plain + HALF * 4 * (128 + 384 + 128)
    assert weights(tiny(use_expert_bias=False)) == plain - FLOAT * 4 * 4


@pytest.mark.parametrize(
    ("changes", "inner"),
    [
        ({"block_ff_dim": 500}, 500),
        ({"block_ff_dim": 500, "block_auto_adjust_ff_dim": True, "block_multiple_of": 32}, 352),
        ({"block_ff_dim": 500, "block_auto_adjust_ff_dim": None}, 512),
        ({"block_ff_dim": 500, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.5,
          "block_multiple_of": 1}, 499),
    ],
)  # fmt: skip
def test_a_dense_layer_is_two_thirds_as_wide_as_said_and_rounded(changes, inner):
    assert weights(tiny(**DENSE | changes)) == whole(6 * [dense(inner)])


def test_widths_of_convolutions_and_blocks_are_their_own():
    wider = weights(tiny(**DENSE | {"conv_dim": 256})) - weights(tiny(**DENSE))
    assert wider == 4 * HALF * (3 * 128 + 4 * (256**2 - 128**2))
    assert weights(tiny(**DENSE | {"block_dim": 256})) == whole(6 * [dense(width=256)])
    # A mixture takes no such fields.
    assert plan(tiny(conv_dim=256)).layers == plan(tiny()).layers


def test_layers_may_be_listed_by_number():
    config = tiny(**DENSE | {"layer_types": None, "full_attn_idxs": [1, 4]})
    assert [layer.name for layer in plan(config).attention_layers] == [
        f"model.layers.{index}.self_attn.attn" for index in (1, 4)
    ]


@pytest.mark.parametrize(
    ("rope", "rows", "turned"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}, 32768, 32),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, 8192, 16),
    ],
)
def test_angles_as_the_configuration_says(rope, rows, turned):
    more = weights(tiny(rope_parameters=rope)) - weights(tiny())
    assert more == HALF * (rows * turned - 8192 * 32)


def test_the_language_model_of_vision_is_of_either_kind():
    config = tiny("lfm2-vl")
    assert weights(config) == weights(tiny())
    assert {layer.name.split(".")[0] for layer in plan(config).layers} == {"language"}
    config["text_config"] |= DENSE
    assert weights(config) == weights(tiny(**DENSE))


def test_a_draft_finds_the_angles_of_its_target():
    assert plan(tiny()).rotary_tables == plan(tiny(**DENSE)).rotary_tables
    assert plan(tiny(layer_types=["conv"] * 6)).rotary_tables == ()


NEEDED = ("num_key_value_heads", "conv_L_cache", "num_hidden_layers")


@pytest.mark.parametrize("field", [*NEEDED, *EXPERTS, "intermediate_size"])
def test_a_field_that_a_mixture_lacks_is_named(field):
    with pytest.raises(VstateError, match=rf"the configuration has no .*{field}"):
        plan(tiny(**{field: None}))


@pytest.mark.parametrize("field", [*NEEDED, "conv_dim", "block_dim", "intermediate_size"])
def test_a_field_that_a_dense_model_lacks_is_named(field):
    with pytest.raises(VstateError, match=rf"the configuration has no .*{field}"):
        plan(tiny(**DENSE | {field: None}))


def test_a_kind_of_language_model_that_vision_lacks_is_named():
    config = copy.deepcopy(tiny("lfm2-vl"))
    del config["text_config"]["model_type"]
    with pytest.raises(VstateError, match=r"the configuration has no text_config\.model_type"):
        plan(config)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"layer_types": None}, "the configuration has no full_attn_idxs"),
        ({"layer_types": ["conv"] * 5}, "5 layer types for 6 layers"),
        ({"num_dense_layers": 6}, "no layer has experts"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantized weights are not counted"),
        ({"rope_parameters": {"rope_type": "dynamic"}}, "angles of the kind 'dynamic' are not known"),
    ],
)
def test_what_is_not_known_is_refused(changes, refusal):
    with pytest.raises(VstateError, match=refusal):
        plan(tiny(**changes))
