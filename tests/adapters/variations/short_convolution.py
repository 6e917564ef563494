"""Short convolutions with attention in between, dense or dense layers before experts, with vision."""

from hypothesis import strategies as st

from support.drawing import engine, kinds

TEXT, VISION = "tiny/lfm2-moe", "tiny/lfm2-vl"
STRETCHED = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192, "rope_theta": 10000.0}


@st.composite
def dense(draw):
    """Draw the widths of a model without experts, whose feed-forward is rounded."""
    return {
        "model_type": "lfm2",
        "conv_dim": draw(st.sampled_from([128, 256])),
        "block_dim": draw(st.sampled_from([128, 256])),
        "block_ff_dim": draw(st.sampled_from([256, 500])),
        "block_multiple_of": draw(st.sampled_from([32, 64])),
        "block_auto_adjust_ff_dim": draw(st.sampled_from([True, None, False])),
        "block_ffn_dim_multiplier": draw(st.sampled_from([1.0, 1.5, None])),
    }


@st.composite
def mixed(draw, layers):
    """Draw the experts of a model, dense layers before them."""
    return {
        "num_dense_layers": draw(st.integers(0, min(2, layers - 1))),
        "num_experts": draw(st.sampled_from([4, 8])),
        "moe_intermediate_size": draw(st.sampled_from([64, 128])),
        "use_expert_bias": draw(st.booleans()),
    }


@st.composite
def cases(draw):
    """Draw a case."""
    model = draw(st.sampled_from([TEXT, TEXT, VISION]))
    types = draw(kinds("conv", "full_attention"))
    has_experts = draw(st.booleans())
    text = {
        "layer_types": types,
        "num_hidden_layers": len(types),
        "conv_L_cache": draw(st.sampled_from([3, 4])),
        "conv_bias": draw(st.booleans()),
        "num_attention_heads": draw(st.sampled_from([4, 8])),
        "num_key_value_heads": draw(st.sampled_from([1, 2, 4])),
        "head_dim": draw(st.sampled_from([None, 64])),
        "tie_word_embeddings": draw(st.booleans()),
        **draw(mixed(len(types)) if has_experts else dense()),
    }
    if draw(st.booleans()):
        text["rope_parameters"] = STRETCHED
    architecture = ["Lfm2MoeForCausalLM" if has_experts else "Lfm2ForCausalLM"]
    if not has_experts and draw(st.booleans()):
        attention = [index for index, kind in enumerate(types) if kind == "full_attention"]
        text |= {"layer_types": None, "full_attn_idxs": attention}
    if model == VISION:
        text = {f"text_config.{name}": value for name, value in (text | {"architectures": architecture}).items()}
        text["vision_config.num_attention_heads"] = 4
        if not has_experts:
            text["text_config.conv_dim"] = 128
    else:
        text["architectures"] = architecture
    return {
        "model": model,
        "settings": draw(engine(ranks=(1, 2, 4), states=True)),
        "config": text,
        "drafting": draw(st.sampled_from(["none", "ngram:3"])),
    }


VARIATIONS = cases()
