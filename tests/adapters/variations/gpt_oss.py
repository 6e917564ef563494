"""Sliding and full attention in turns, with sinks and experts."""

from hypothesis import strategies as st

from support.drawing import engine


@st.composite
def cases(draw):
    """Draw a case."""
    layers = draw(st.integers(2, 7))
    return {
        "model": "tiny/gpt-oss",
        "settings": draw(engine(cache_dtypes=("auto",))),
        "config": {
            "num_hidden_layers": layers,
            "layer_types": [("sliding_attention", "full_attention")[index % 2] for index in range(layers)],
            "num_attention_heads": draw(st.sampled_from([4, 8])),
            "num_key_value_heads": draw(st.sampled_from([2, 4])),
            "num_local_experts": draw(st.sampled_from([4, 8])),
            "intermediate_size": draw(st.sampled_from([128, 256])),
            "sliding_window": draw(st.sampled_from([64, 128, 200])),
        },
    }


VARIATIONS = cases()
