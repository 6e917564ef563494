"""Sliding and full attention of one head size."""

from hypothesis import strategies as st

from support.drawing import engine, kinds


@st.composite
def cases(draw):
    """Draw a case."""
    types = draw(kinds("sliding_attention", "full_attention"))
    if draw(st.booleans()):
        # Without types of layers every so many-th is full attention.
        said = {"layer_types": None, "sliding_window_pattern": draw(st.integers(2, 4))}
    else:
        said = {"layer_types": types}
    return {
        "model": "tiny/gemma3",
        "settings": draw(engine(ranks=(1, 2, 4))) | {"disable_hybrid_kv_cache_manager": draw(st.booleans())},
        "config": {
            **said,
            "num_hidden_layers": len(types),
            "num_attention_heads": draw(st.sampled_from([4, 8])),
            "num_key_value_heads": draw(st.sampled_from([1, 2, 4])),
            "head_dim": draw(st.sampled_from([32, 64])),
            "intermediate_size": draw(st.sampled_from([128, 256])),
            "sliding_window": draw(st.sampled_from([64, 100, 256, 512])),
        },
    }


VARIATIONS = cases()
