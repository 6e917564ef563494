"""Short convolutions with attention in between, dense layers before experts."""

from hypothesis import strategies as st

from support.drawing import engine, kinds


@st.composite
def cases(draw):
    """Draw a case."""
    types = draw(kinds("conv", "full_attention"))
    settings = draw(engine(states=True, cache_dtypes=("auto",)))
    kind = {}
    if draw(st.booleans()):
        kind = {
            "architectures": ["Lfm2ForCausalLM"],
            "model_type": "lfm2",
            "conv_dim": 128,
            "conv_dim_out": 128,
            "block_dim": 128,
            "block_ff_dim": draw(st.sampled_from([256, 500])),
            "block_multiple_of": draw(st.sampled_from([32, 64])),
            "block_auto_adjust_ff_dim": draw(st.booleans()),
            "block_ffn_dim_multiplier": draw(st.sampled_from([1.0, 1.5])),
        }
    return {
        "model": "tiny/lfm2-moe",
        "settings": settings,
        "config": {
            **kind,
            "layer_types": types,
            "num_hidden_layers": len(types),
            "conv_L_cache": draw(st.sampled_from([3, 4])),
            "num_attention_heads": draw(st.sampled_from([2, 4])),
            "num_key_value_heads": draw(st.sampled_from([1, 2])),
            "num_dense_layers": draw(st.integers(0, 2)),
            "num_experts": draw(st.sampled_from([4, 8])),
            "moe_intermediate_size": draw(st.sampled_from([64, 128])),
        },
    }


VARIATIONS = cases()
