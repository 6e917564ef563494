"""Figures that others published, worked out from configurations."""

import pytest

from vstate.inventory.footprint import request_footprint
from vstate.inventory.profiles import find_profile
from vstate.inventory.serving import Drafting, ServingSettings
from vstate.inventory.state_inventory import StateInventory
from vstate.schemas.vocabulary import StateClass
from vstate.tracer.models.full_models import full_model

HOPPER = find_profile("cuda-hopper")
SETTINGS = {"num_gpu_blocks_override": 10_000, "max_num_batched_tokens": 8192, "dtype": "bfloat16"}

PUBLISHED = {
    # Bytes per token of attention, per request of a window's or a state's layers, per token of the draft.
    "step-3.7-flash": (49_152, {"sliding_kv": 69_206_016}, 12_288),
    "mimo-v2.5": (23_040, {"sliding_kv": 25_559_040}, 5_120),
    "nemotron-3-nano-omni": (6_144, {"state": 24_965_120}, 0),
    "lfm2.5-8b-a1b": (12_288, {"state": 147_456}, 0),
    "qwen3.6-35b-a3b": (20_480, {"state": 64_389_120}, 2_048),
    "qwen3.6-27b": (65_536, {"state": 153_944_064}, 4_096),
    "nemotron-3-ultra": (12_288, {"state": 407_961_600}, 1_024),
    "nemotron-3-super": (8_192, {"state": 170_229_760}, 1_024),
}
"""Measured on vLLM's own specs apart from this repository: one rank, bfloat16, without drafts for states."""


def state_settings(name):
    return {k: v for k, v in full_model(name).arguments.items() if k == "mamba_ssm_cache_dtype"}


def worked_out(name, drafting=None, **settings):
    said = ServingSettings(**SETTINGS | state_settings(name) | settings, drafting=drafting)
    return StateInventory.from_config(full_model(name).config, said, HOPPER)


def per_unit(inventory, owner, *classes):
    return sum(
        component.useful_bytes_per_unit
        for state_class in classes
        for component in inventory.find(StateClass(state_class), owner)
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_bytes_of_a_token_and_of_a_request(name):
    attention, kept, draft = PUBLISHED[name]
    plain = worked_out(name)
    assert per_unit(plain, "target", "full_kv") == attention
    if "state" in kept:
        assert per_unit(plain, "target", "recurrent", "conv") == kept["state"]
    else:
        window = next(group.window_tokens for group in plain.groups if group.window_tokens)
        assert per_unit(plain, "target", "sliding_kv") * window == kept["sliding_kv"]
    own = full_model(name).draft
    if draft:
        drafted = worked_out(name, Drafting(method="mtp", tokens=own.tokens))
        assert per_unit(drafted, "draft", "full_kv", "sliding_kv") == draft
    else:
        assert own is None


@pytest.mark.parametrize(
    ("name", "state_bytes"),
    [("nemotron-3-ultra", 8_536_064), ("nemotron-3-super", 4_276_224), ("qwen3.6-35b-a3b", 2_162_688),
     ("qwen3.6-27b", 3_227_648)],
)  # fmt: skip
def test_one_draft_token_widens_the_tail(name, state_bytes):
    drafted = worked_out(name, Drafting(method="mtp", tokens=1))
    layers = [row for row in drafted.layers() if row.state_class in (StateClass.CONV, StateClass.RECURRENT)]
    by_layer = {}
    for row in layers:
        by_layer[row.layer] = by_layer.get(row.layer, 0) + row.block_bytes
    assert set(by_layer.values()) == {state_bytes}


@pytest.mark.parametrize("name", ["nemotron-3-nano-omni", "nemotron-3-super"])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("tokens", [1, 5_000, 100_000])
def test_blocks_of_a_request_by_kaito_s_formula(name, caching, tokens):
    """kaito#2052, compared there with what vLLM said for Nemotron 3 Nano and Super.

    Groups of attention x blocks of the sequence, and groups of states x 1, or x 2 where prefixes are cached. vLLM 0.32
    has one state more while a prefill exports a checkpoint from inside a chunk.
    """
    found = worked_out(name, enable_prefix_caching=caching)
    states = [group for group in found.groups if group.state_mode]
    attention = [group for group in found.groups if not group.state_mode]
    block = attention[0].block_tokens
    request = request_footprint(found, tokens)
    each = -(-tokens // block)
    boundaries = min(each, 2) if caching else 1
    kaito = len(attention) * each + len(states) * boundaries
    exports = sum(group.checkpoint_blocks for group in states) if caching and each > 1 else 0
    assert kaito <= request.total_blocks <= kaito + 2 * exports


def test_a_short_prompt_takes_a_whole_block_of_every_group():
    """vllm#54458's kind: the block is as large as a state, and every group gives one, whatever the prompt's length."""
    found = worked_out("nemotron-3-ultra", num_gpu_blocks_override=50)
    shortest = request_footprint(found, 12)
    assert len(found.groups) == 5
    assert shortest.blocks == (1, 1, 1, 1, 1)
    assert shortest.pool_share > 0.1
    assert shortest.at_once == 49 // 5
    # 12 tokens of attention and one state; the rest of five blocks is bought and not used.
    attention = next(group for group in found.groups if not group.state_mode)
    assert attention.block_tokens > 8_000
    assert shortest.charged_bytes == 5 * found.pools[0].block_bytes


def sliding_waste(config, context):
    """Share of the cache that is wasted when layers with a window keep every token: of what a full context takes."""
    settings = {"num_gpu_blocks_override": 10_000, "max_model_len": context, "block_size": 16}
    whole = StateInventory.from_config(
        config, ServingSettings(**settings, disable_hybrid_kv_cache_manager=True), HOPPER
    )
    apart = StateInventory.from_config(config, ServingSettings(**settings), HOPPER)
    kept = sum(request_footprint(whole, context - 1).blocks) * whole.pools[0].block_bytes
    needed = sum(
        component.useful_bytes_per_unit * (group.window_tokens or context)
        for group in apart.groups
        for component in group.components
    )
    return 1 - needed / kept


GEMMA2 = {
    "architectures": ["Gemma2ForCausalLM"],
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "num_hidden_layers": 42,
    "sliding_window": 4096,
    "vocab_size": 256000,
    "max_position_embeddings": 8192,
    "dtype": "bfloat16",
}
"""google/gemma-2-9b: every second layer has a window of half the context."""


def test_what_windows_waste_that_keep_every_token():
    """vllm#11382: 25% in Gemma 2."""
    assert sliding_waste(GEMMA2, 8192) == pytest.approx(0.25)
    # And 56.25% in Ministral: three of four layers with a quarter of the context, by the same rules.
    quarters = GEMMA2 | {
        "num_hidden_layers": 36,
        "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 9,
        "sliding_window": 32768,
        "max_position_embeddings": 131072,
    }
    assert sliding_waste(quarters, 131072) == pytest.approx(0.5625)
