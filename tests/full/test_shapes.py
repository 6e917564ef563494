"""True-size models as vLLM builds them, against arithmetic on their configurations.

The formulas here are written from the configurations' own words; nothing of vLLM or of the
inventory goes into them.
"""

import math
from collections import Counter

import pytest

from vstate.tracer.models.full_models import FULL_MODELS, full_model

NAMES = list(FULL_MODELS)
each_model = pytest.mark.parametrize("name", NAMES)
TWO_BYTES = 2
STATE_BYTES = {"bfloat16": 2, "float32": 4}

# Billions of parameters that were measured apart from this repository, as printed there; parts by the name in vLLM.
MEASURED = {
    "step-3.7-flash": {"": "198.94", "language_model": "196.96", "vision_model": "1.96", "draft": "2.96"},
    "mimo-v2.5": {
        "": "309.92",
        "language_model": "308.78",
        "visual": "0.7286",
        "audio_encoder": "0.4167",
        "draft": "1.58",
    },
    "nemotron-3-nano-omni": {
        "": "33.02",
        "language_model": "31.58",
        "vision_model": "0.654",
        "sound_encoder": "0.624",
        "mlp1": "0.160",
        "draft": "0",
    },
    "lfm2.5-8b-a1b": {"": "8.468", "draft": "0"},
    "qwen3.6-35b-a3b": {"": "35.11", "visual": "0.4466"},
    "qwen3.6-27b": {"": "27.36", "visual": "0.4607"},
    "nemotron-3-ultra": {"": "549.3", "draft": "13.4"},
    "nemotron-3-super": {"": "120.7", "draft": "4.0"},
}


def kv(heads, key, value):
    """Bytes of one token in one layer."""
    return heads * (key + value) * TWO_BYTES


def step_layers(text):
    other = text["attention_other_setting"]
    kinds = Counter(text["layer_types"])
    full = kv(text["num_attention_groups"], text["head_dim"], text["head_dim"])
    sliding = kv(other["num_attention_groups"], other["head_dim"], other["head_dim"])
    return {
        ("target", "full_kv"): (kinds["full_attention"], full),
        ("target", "sliding_kv"): (kinds["sliding_attention"], sliding),
        ("draft", "sliding_kv"): (text["num_nextn_predict_layers"], sliding),
    }


def mimo_layers(text):
    sliding = kv(text["swa_num_key_value_heads"], text["swa_head_dim"], text["swa_v_head_dim"])
    return {
        ("target", "full_kv"): (
            text["hybrid_layer_pattern"].count(0),
            kv(text["num_key_value_heads"], text["head_dim"], text["v_head_dim"]),
        ),
        ("target", "sliding_kv"): (text["hybrid_layer_pattern"].count(1), sliding),
        # vLLM builds one of the checkpoint's three modules.
        ("draft", "sliding_kv"): (1, sliding),
    }


LETTERS = {"mamba": "M", "moe": "E", "attention": "*"}


def nemotron_layers(text, tokens, state_type):
    """Mamba2: heads of a state each, and a tail of the convolution over heads and both groups of B and C."""
    pattern = text.get("hybrid_override_pattern") or [LETTERS[kind] for kind in text["layers_block_type"]]
    drafting = text.get("mtp_hybrid_override_pattern") or [LETTERS[k] for k in text.get("mtp_layers_block_type", ())]
    inner = text["mamba_num_heads"] * text["mamba_head_dim"]
    columns = text["conv_kernel"] - 1 + tokens
    tail = columns * (inner + 2 * text["n_groups"] * text["ssm_state_size"]) * TWO_BYTES
    state = inner * text["ssm_state_size"] * STATE_BYTES[state_type]
    attention = kv(text["num_key_value_heads"], text["head_dim"], text["head_dim"])
    return {
        ("target", "full_kv"): (pattern.count("*"), attention),
        ("target", "recurrent"): (pattern.count("M"), tail + state),
        ("draft", "full_kv"): (drafting.count("*"), attention),
    }


def qwen_layers(text, tokens, state_type):
    kinds = Counter(text["layer_types"])
    values = text["linear_num_value_heads"] * text["linear_value_head_dim"]
    keys = text["linear_num_key_heads"] * text["linear_key_head_dim"]
    tail = (text["linear_conv_kernel_dim"] - 1 + tokens) * (2 * keys + values) * TWO_BYTES
    state = values * text["linear_key_head_dim"] * STATE_BYTES[state_type]
    attention = kv(text["num_key_value_heads"], text["head_dim"], text["head_dim"])
    return {
        ("target", "full_kv"): (kinds["full_attention"], attention),
        ("target", "recurrent"): (kinds["linear_attention"], tail + state),
        ("draft", "full_kv"): (text["mtp_num_hidden_layers"], attention),
    }


def lfm_layers(text):
    kinds = Counter(text["layer_types"])
    head = text["hidden_size"] // text["num_attention_heads"]
    return {
        ("target", "full_kv"): (kinds["full_attention"], kv(text["num_key_value_heads"], head, head)),
        ("target", "conv"): (kinds["conv"], (text["conv_L_cache"] - 1) * text["hidden_size"] * TWO_BYTES),
    }


def deepseek_layers(text):
    """The latent of all heads with its rotary part; the index: one byte a value, four a scale for 128 of them."""
    latent = (text["kv_lora_rank"] + text["qk_rope_head_dim"]) * TWO_BYTES
    index = text["index_head_dim"] + 4 * text["index_head_dim"] // 128
    layers = {"target": text["num_hidden_layers"], "draft": text["num_nextn_predict_layers"]}
    return {
        (owner, kind): (count, each)
        for owner, count in layers.items()
        for kind, each in (("latent_kv", latent), ("sparse_index", index))
    }


def expected_layers(model):
    """Say how many layers of each owner and class there are, and their bytes a token or, of a state, a request."""
    text = model.text_config
    tokens = model.draft.tokens if model.draft else 0
    state_type = model.arguments.get("mamba_ssm_cache_dtype", "")
    family = model.name.partition("-")[0]
    if family in ("nemotron", "qwen3.6"):
        layers = {"nemotron": nemotron_layers, "qwen3.6": qwen_layers}[family](text, tokens, state_type)
    else:
        layers = {"step": step_layers, "mimo": mimo_layers, "lfm2.5": lfm_layers, "deepseek": deepseek_layers}[family](
            text
        )
    return {key: value for key, value in layers.items() if value[0]}


def class_of(spec):
    if spec["kind"] == "MambaSpec":
        return "recurrent" if len(spec["types"]) > 1 else "conv"
    if spec["kind"] == "MLAAttentionSpec":
        return "sparse_index" if "index" in spec["role"].lower() else "latent_kv"
    return {"FullAttentionSpec": "full_kv", "SlidingWindowSpec": "sliding_kv"}[spec["kind"]]


def owner_of(model, layer):
    """Drafting layers have a name of their own, or stand behind the target's."""
    number = int(layer.split("layers.")[1].partition(".")[0])
    behind = model.name.startswith(("step", "deepseek")) and number >= model.text_config["num_hidden_layers"]
    return "draft" if behind or "mtp" in layer else "target"


def in_billions(count, printed):
    """Round a count as ``printed`` is rounded."""
    return f"{count / 1e9:.{len(printed.partition('.')[2])}f}"


@each_model
def test_layers_and_bytes_follow_from_the_configuration(name, built):
    model = full_model(name)
    found = {}
    for layer, spec in built(name)["specs"].items():
        kind = class_of(spec)
        tokens = 1 if kind in ("recurrent", "conv") else spec["block_tokens"]
        found.setdefault((owner_of(model, layer), kind), []).append(spec["page_bytes"] / tokens)
    assert {key: (len(each), *set(each)) for key, each in found.items()} == expected_layers(model)


@each_model
def test_windows_are_the_configuration_s(name, built):
    text = full_model(name).text_config
    windows = {spec["window"] for spec in built(name)["specs"].values() if spec["kind"] == "SlidingWindowSpec"}
    # Qwen, Nemotron and LFM say that there is none, or nothing.
    assert windows == ({text["sliding_window"]} if text.get("sliding_window") else set())


@each_model
def test_states_have_the_type_that_is_said_and_not_the_cpu_s(name, built):
    said = full_model(name).arguments.get("mamba_ssm_cache_dtype")
    types = {tuple(spec["types"]) for spec in built(name)["specs"].values() if class_of(spec) == "recurrent"}
    assert types == ({("torch.bfloat16", f"torch.{said}")} if said else set())


@pytest.mark.parametrize("name", MEASURED)
def test_parameters_are_those_that_were_measured(name, built):
    parts = built(name)["parts"]
    counts = parts | {"": sum(parts.values()), "draft": built(name)["draft"]}
    printed = MEASURED[name]
    assert {part: in_billions(counts[part], text) for part, text in printed.items()} == printed


def test_the_parameters_of_deepseek_follow_from_the_configuration(built):
    """Counted by hand: vLLM's figure was measured nowhere else."""
    c = full_model("deepseek-v3.2").text_config
    hidden, heads, layers = c["hidden_size"], c["num_attention_heads"], c["num_hidden_layers"]
    query, latent = c["q_lora_rank"], c["kv_lora_rank"]
    no_rotary, rotary, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    attention = hidden * query + query * heads * (no_rotary + rotary) + query
    attention += hidden * (latent + rotary) + latent * heads * (no_rotary + value) + latent
    attention += heads * value * hidden
    index_heads, index = c["index_n_heads"], c["index_head_dim"]
    indexing = query * index_heads * index + hidden * (index + index_heads) + 2 * index
    experts = c["n_routed_experts"] + c["n_shared_experts"]
    sparse = 3 * hidden * c["moe_intermediate_size"] * experts + (hidden + 1) * c["n_routed_experts"]
    dense = 3 * hidden * c["intermediate_size"]
    first = c["first_k_dense_replace"]
    layer = attention + indexing + 2 * hidden
    embeddings = 2 * c["vocab_size"] * hidden
    total = embeddings + layers * layer + first * dense + (layers - first) * sparse + hidden
    assert sum(built("deepseek-v3.2")["parts"].values()) == total
    # The drafting layer: two norms, a projection of two vectors to one, a layer, a norm and a head; embeddings.
    assert built("deepseek-v3.2")["draft"] == embeddings + 2 * hidden * hidden + 3 * hidden + layer + sparse


@each_model
def test_parameters_are_what_the_publisher_says(name, built):
    """Within three hundredths, or the evidence says why not."""
    model = full_model(name)
    ratio = sum(built(name)["parts"].values()) / model.parameters.published
    said = any("vLLM builds" in sentence and "B." in sentence for sentence in model.evidence.mismatches)
    assert said or math.isclose(ratio, 1, abs_tol=0.03)


@each_model
def test_contexts_are_as_long_as_published_and_prefixes_are_kept(name, built):
    assert built(name)["max_model_len"] == full_model(name).text_config["max_position_embeddings"]
    assert built(name)["prefix_caching"] is True


def merged(width, height, least, most):
    """Rows of an image of which each 32 by 32 pixels make one: sides to the nearest 32, then into the limits."""
    sides = [32 * round(side / 32) for side in (height, width)]
    if math.prod(sides) > most:
        shrink = math.sqrt(height * width / most)
        sides = [32 * math.floor(side / shrink / 32) for side in (height, width)]
    elif math.prod(sides) < least:
        stretch = math.sqrt(least / (height * width))
        sides = [32 * math.ceil(side * stretch / 32) for side in (height, width)]
    return math.prod(sides) // (32 * 32)


@pytest.mark.parametrize("name", ["mimo-v2.5", "qwen3.6-35b-a3b", "qwen3.6-27b"])
def test_images_of_merged_patches_have_the_rows_of_their_size(name, built):
    model = full_model(name)
    if name.startswith("mimo"):
        limits = model.config["processor_config"]
        least, most = limits["image_min_pixels"], limits["image_max_pixels"]
    else:
        limits = model.media.files["preprocessor_config.json"]["size"]
        least, most = limits["shortest_edge"], limits["longest_edge"]
    for item, counts in built(name)["media"].items():
        width, height = map(int, item.removeprefix("image:").split("x"))
        rows = merged(width, height, least, most)
        assert counts == {"tokens": rows + len(model.media.placeholders["image"]) - 1, "rows": rows}, item


def test_step_crops_large_images(built):
    """A base image and crops of 504 pixels, each with two tokens that have no row, and a newline per row of crops."""
    config = full_model("step-3.7-flash").config
    media = built("step-3.7-flash")["media"]
    grids = {"image:1024x1024": (2, 2), "image:1920x1080": (4, 2), "image:3024x3024": (6, 6)}
    for item, (columns, rows) in grids.items():
        crops = columns * rows
        embedded = config["image_token_len"] + crops * config["patch_token_len"]
        # The last row of crops has no newline.
        assert media[item] == {"tokens": embedded + 2 + 2 * crops + rows - 1, "rows": embedded}, item


def test_omni_has_a_row_for_four_patches_and_twelve_and_a_half_for_a_second(built):
    config = full_model("nemotron-3-nano-omni").config
    media = built("nemotron-3-nano-omni")["media"]
    per_row = (config["patch_size"] / config["downsample_ratio"]) ** 2
    assert media["image:1024x1024"]["rows"] == 1024 * 1024 / per_row
    most = config["vision_config"]["args"]["max_num_patches"] / 4
    assert 0.99 * most < media["image:4096x4096"]["rows"] <= most
    sound = config["sound_config"]
    frames = 2 * sound["sampling_rate"] / 160  # a frame is ten milliseconds
    assert media["audio:2"]["rows"] == math.ceil(frames / sound["subsampling_factor"])


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("nemotron-3-super", "is_act_and_mul=False is supported only"),
        ("step-3.7-flash", "No Unquantized MoE backend"),
        ("deepseek-v3.2", "Sparse Attention is not supported on CPU"),
    ],
)
def test_a_patch_is_still_needed(name, refusal, unpatched):
    """One that is not must go."""
    assert refusal in unpatched(name)
