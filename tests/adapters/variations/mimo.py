"""Full and sliding attention with heads of their own, keys wider than values, with and without a native draft."""

from hypothesis import strategies as st

from support.drawing import engine, kinds


@st.composite
def cases(draw):
    """Draw a case."""
    pattern = draw(kinds(0, 1))
    count = len(pattern) - 1
    head = draw(st.sampled_from([64, 128]))
    return {
        "model": draw(st.sampled_from(["tiny/mimo-v2", "tiny/mimo-v2-mtp"])),
        "settings": draw(engine(cache_dtypes=("auto",))),
        "config": {
            "hybrid_layer_pattern": pattern,
            "num_hidden_layers": len(pattern),
            "moe_layer_freq": [0, *draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))],
            "num_attention_heads": draw(st.sampled_from([4, 8])),
            "num_key_value_heads": draw(st.sampled_from([1, 2])),
            "swa_num_attention_heads": draw(st.sampled_from([4, 8])),
            "swa_num_key_value_heads": draw(st.sampled_from([2, 4])),
            "head_dim": head,
            "swa_head_dim": head,
            "v_head_dim": 64,
            "swa_v_head_dim": 64,
            "sliding_window": 128,
            "sliding_window_size": 128,
            "swa_rope_theta": draw(st.sampled_from([10000.0, 20000.0])),
        },
    }


VARIATIONS = cases()
