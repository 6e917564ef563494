"""GatedDeltaNet: tensors of the tiny models by hand, published parameters, what vLLM does beside the configuration."""

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
EMBEDDING = 1024 * 128
"""Of the tiny models, whose width is 128."""
EXPERTS = {"num_experts": 4, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64}
MIXED = {"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", **EXPERTS}


def tiny(name, **changes):
    config = json.loads(package_text("tiny", f"{name}.json")) | changes
    return {field: value for field, value in config.items() if value is not None}


def plan(config, **settings):
    said = ServingSettings(**{"dtype": "bfloat16"} | settings)
    return find_adapter(config).plan(config, said, CPU)


def weights(config, owner="target", **settings):
    return next(part.bytes for part in plan(config, **settings).weights if part.owner == owner and not part.part)


def mtp(tokens):
    return Drafting(method="mtp", tokens=tokens)


def linear_layer():
    """Tensors of a layer of the tiny models: 1 key head and 2 value heads of 128, a kernel of 4."""
    halves = [(4, 512), (128, 768), (128, 4), (2,), (128,), (256, 128)]
    return HALF * sum(map(prod, halves)) + FLOAT * 2


def attention_layer(head):
    """4 query heads with their gates, 2 key-value heads, two norms."""
    halves = [(128, 8 * head), (128, 2 * head), (128, 2 * head), (4 * head, 128), (head,), (head,)]
    return HALF * sum(map(prod, halves)) + SCALES


def dense():
    return HALF * (128 * 2 * 256 + 256 * 128)


def experts():
    """4 experts, a router, a shared expert and its gate."""
    return HALF * (4 * (128 * 128 + 64 * 128) + 4 * 128 + (128 * 128 + 64 * 128) + 128)


def whole(head, feed_forward):
    """Three layers of linear attention and one of attention, in each two norms; embedding, head, norm and angles."""
    layers = 3 * linear_layer() + attention_layer(head) + 4 * (feed_forward + HALF * 2 * 128)
    return layers + HALF * (2 * EMBEDDING + 128) + HALF * 8192 * (head // 4)


def test_the_tiny_models_are_the_sum_of_their_tensors():
    assert weights(tiny("qwen3-next")) == whole(32, experts())
    assert weights(tiny("qwen3.5")) == whole(64, dense())
    assert weights(tiny("qwen3.5", **MIXED)) == whole(64, experts())


@pytest.mark.parametrize("modules", [1, 2])
def test_a_draft_is_the_sum_of_its_tensors(modules):
    """Layers, a projection of two rows to one and three norms; embedding and head are the target's."""
    config = tiny("qwen3.5", mtp_num_hidden_layers=modules)
    drafted = plan(config, drafting=mtp(2))
    draft = next(part for part in drafted.weights if part.owner == "draft")
    layer = attention_layer(64) + dense() + HALF * 2 * 128
    assert draft.bytes == modules * layer + HALF * (256 * 128 + 3 * 128)
    assert draft.shared_bytes == HALF * 2 * EMBEDDING
    assert [layer.name for layer in drafted.layers[4:]] == [
        f"mtp.layers.{index}.self_attn.attn" for index in range(modules)
    ]


@pytest.mark.parametrize(("name", "published"), [("qwen3.6-35b-a3b", "35.11"), ("qwen3.6-27b", "27.36")])
def test_published_parameters(name, published):
    """Measured on a meta build apart from this repository, towers included, tables of angles not."""
    model = full_model(name)
    built = plan(model.config, processor=model.media.files)
    angles = HALF * 262_144 * 64 + HALF * 8192 * 36
    assert f"{(sum(part.bytes for part in built.weights) - angles) / HALF / 1e9:.2f}" == published


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_ranks_do_not_share(ranks):
    """Norms, routers, gates of shared experts, angles and scales."""
    config = tiny("qwen3.5", **MIXED, linear_num_key_heads=4, linear_num_value_heads=8) | {"num_key_value_heads": 4}
    norms = 4 * 2 * 128 + 128 + 3 * 128 + 2 * 64
    routers = 4 * (4 * 128 + 128)
    alike = HALF * (norms + routers + 8192 * 16) + SCALES
    assert ranks * weights(config, tensor_parallel_size=ranks) - weights(config) == (ranks - 1) * alike


def test_key_value_heads_are_repeated_where_there_are_fewer_than_ranks():
    config = tiny("qwen3-next", linear_num_key_heads=4, linear_num_value_heads=4)
    assert [plan(config, tensor_parallel_size=n).attention_layers[0].heads for n in (1, 2, 4)] == [2, 1, 1]


def test_states_are_shared_by_heads_and_drafts_widen_the_tail():
    config = tiny("qwen3-next", linear_num_key_heads=2, linear_num_value_heads=4)
    for ranks in (1, 2):
        drafting = Drafting(method="ngram", tokens=3)
        layer = plan(config, tensor_parallel_size=ranks, drafting=drafting).state_layers[0]
        assert [part.shape for part in layer.parts] == [(6, 1024 // ranks), (4 // ranks, 128, 128)]


@pytest.mark.parametrize(
    ("name", "said", "asked", "dtype"),
    [
        ("qwen3.5", "float32", "auto", "float32"),
        ("qwen3.5", "float32", "bfloat16", "bfloat16"),
        ("qwen3.5", None, "auto", "bfloat16"),
        ("qwen3-next", "float32", "auto", "bfloat16"),
    ],
)
def test_only_the_later_generation_says_the_type_of_its_states(name, said, asked, dtype):
    layer = plan(tiny(name, mamba_ssm_dtype=said), mamba_ssm_cache_dtype=asked).state_layers[0]
    assert [part.dtype for part in layer.parts] == ["bfloat16", dtype]


def test_which_word_ties_the_head_to_the_embedding():
    """Qwen3-Next is never tied; with vision the text's word counts, not the whole's."""
    head = HALF * EMBEDDING
    assert weights(tiny("qwen3-next", tie_word_embeddings=True)) == weights(tiny("qwen3-next"))
    assert weights(tiny("qwen3.5", tie_word_embeddings=True)) == weights(tiny("qwen3.5")) - head
    plain = tiny("qwen3.5-vl")
    text = copy.deepcopy(plain)
    text["text_config"]["tie_word_embeddings"] = True
    assert weights(plain | {"tie_word_embeddings": True}) == weights(plain)
    assert weights(text) == weights(plain) - head


def test_fields_that_add_weights():
    plain = weights(tiny("qwen3.5"))
    assert weights(tiny("qwen3.5", attention_bias=True)) == plain
    assert weights(tiny("qwen3.5", qkv_bias=True)) == plain + HALF * (8 + 2 + 2) * 64
    assert weights(tiny("qwen3.5", layer_scale=True)) == plain + HALF * 4 * 2 * 128
    assert weights(tiny("qwen3.5", attn_output_gate=False)) == plain - HALF * 128 * 4 * 64
    assert weights(tiny("qwen3.5", num_experts=4)) == plain


def test_a_shared_expert_leaves_its_gate_behind():
    without = weights(tiny("qwen3-next", shared_expert_intermediate_size=0))
    assert weights(tiny("qwen3-next")) - without == 4 * HALF * 3 * 128 * 64


def test_stretched_angles_have_longer_tables():
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192, "partial_rotary_factor": 0.25}
    longer = weights(tiny("qwen3-next", rope_parameters=rope)) - weights(tiny("qwen3-next"))
    assert longer == HALF * 3 * 8192 * 8


def test_a_quarter_of_a_head_is_turned_where_nothing_is_said():
    config = tiny("qwen3-next", rope_parameters=None, partial_rotary_factor=None, rope_theta=10000.0)
    assert weights(config) == weights(tiny("qwen3-next"))


def test_a_draft_of_a_target_without_attention_has_its_own_angles():
    config = tiny("qwen3.5", layer_types=["linear_attention"] * 4)
    own = weights(config, "draft", drafting=mtp(1))
    assert own - weights(tiny("qwen3.5"), "draft", drafting=mtp(1)) == HALF * 8192 * 16


def test_layers_without_experts_have_a_dense_part():
    mixed = weights(tiny("qwen3-next"))
    for changes in ({"decoder_sparse_step": 2}, {"mlp_only_layers": [1, 3]}):
        assert weights(tiny("qwen3-next", **changes)) == mixed + 2 * (dense() - experts())
    assert weights(tiny("qwen3-next", decoder_sparse_step=3)) == mixed + 3 * (dense() - experts())


def test_a_draft_s_layers_are_counted_anew():
    """With every second layer sparse, the first of two draft layers is dense."""
    config = tiny("qwen3-next", num_nextn_predict_layers=2)
    every = weights(config, "draft", drafting=mtp(2))
    assert weights(config | {"decoder_sparse_step": 2}, "draft", drafting=mtp(2)) == every + dense() - experts()


def test_attention_comes_in_intervals_where_no_types_are_listed():
    config = tiny("qwen3-next", layer_types=None, num_hidden_layers=6, full_attention_interval=3)
    assert [layer.name.split(".")[2] for layer in plan(config).attention_layers] == ["2", "5"]
    usual = tiny("qwen3-next", layer_types=None, num_hidden_layers=8)
    assert [layer.name.split(".")[2] for layer in plan(usual).attention_layers] == ["3", "7"]


def test_modules_of_a_draft_that_read_further_ahead():
    assert plan(tiny("qwen3-next"), drafting=mtp(1)).draft_modules == 1
    assert plan(tiny("qwen3-next", num_nextn_predict_layers=2), drafting=mtp(2)).draft_modules == 2
    assert plan(tiny("qwen3.5", mtp_num_hidden_layers=2), drafting=mtp(2)).draft_modules == 1


NEEDED = (
    "head_dim", "num_key_value_heads", "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
    "linear_value_head_dim", "linear_conv_kernel_dim", "num_hidden_layers",
)  # fmt: skip
NEEDED_BY = [("qwen3-next", field) for field in (*NEEDED, *EXPERTS)]
NEEDED_BY += [("qwen3.5", field) for field in (*NEEDED, "intermediate_size", "model_type")]


@pytest.mark.parametrize(("name", "field"), NEEDED_BY)
def test_a_missing_field_is_named(name, field):
    with pytest.raises(VstateError, match=rf"the configuration has no {field}"):
        plan(tiny(name, **{field: None}))


@pytest.mark.parametrize(
    ("name", "changes", "refusal"),
    [
        ("qwen3-next", {"layer_types": ["full_attention"] * 3}, "3 layer types for 4 layers"),
        ("qwen3-next", {"num_experts": 0}, "none of 4 layers has experts"),
        ("qwen3-next", {"decoder_sparse_step": 3, "mlp_only_layers": [2]}, "none of 4 layers has experts"),
        ("qwen3-next", {"mlp_only_layers": [0, 1, 2, 3]}, "none of 4 layers has experts"),
        ("qwen3.5", {"model_type": "qwen3_6_text"}, "model_type is 'qwen3_6_text', which is not known"),
        ("qwen3.5", {"quantization_config": {"quant_method": "fp8"}}, "quantized weights are not counted"),
        ("qwen3.5", {"rope_parameters": {"rope_type": "dynamic"}}, "angles of the kind 'dynamic' are not known"),
    ],
)
def test_what_is_not_known_is_refused(name, changes, refusal):
    with pytest.raises(VstateError, match=refusal):
        plan(tiny(name, **changes))


@pytest.mark.parametrize(
    ("name", "changes", "tokens", "refusal"),
    [
        ("qwen3.5", {"mtp_num_hidden_layers": 2}, 3, "3 draft tokens are no multiple of the draft's 2 layers"),
        ("qwen3.5", {"mtp_num_hidden_layers": 0}, 1, "has no native draft"),
        ("qwen3-next", {"decoder_sparse_step": 2}, 1, "none of 1 layers has experts"),
    ],
)
def test_drafts_that_vllm_does_not_take_are_refused(name, changes, tokens, refusal):
    with pytest.raises(VstateError, match=refusal):
        plan(tiny(name, **changes), drafting=mtp(tokens))


def test_fewer_tokens_than_layers_are_taken():
    assert plan(tiny("qwen3.5", mtp_num_hidden_layers=2), drafting=mtp(1)).draft_modules == 1
