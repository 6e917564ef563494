"""Drafts that are models of their own, heads, or nothing but look-ups."""

from hypothesis import strategies as st

from support.drawing import engine


@st.composite
def cases(draw):
    """Draw a case."""
    model = draw(st.sampled_from(["tiny/qwen3-draft", "tiny/qwen3-eagle3"]))
    head = draw(st.sampled_from([32, 64]))
    changes = {
        "num_attention_heads": draw(st.sampled_from([4, 8])),
        "num_key_value_heads": draw(st.sampled_from([1, 2, 4])),
        "head_dim": head,
        "intermediate_size": draw(st.sampled_from([128, 256])),
        "max_position_embeddings": draw(st.sampled_from([4096, 8192])),
    }
    if model == "tiny/qwen3-draft":
        layers = draw(st.integers(1, 4))
        changes |= {"num_hidden_layers": layers, "layer_types": ["full_attention"] * layers}
    else:
        changes |= {"draft_vocab_size": draw(st.sampled_from([512, 1024]))}
    return {"model": model, "settings": draw(engine()), "draft_config": changes}


VARIATIONS = cases()
