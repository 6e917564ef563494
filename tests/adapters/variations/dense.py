"""Decoders of one kind of layer."""

from hypothesis import strategies as st

from support.drawing import engine

KIN = (
    ("Qwen3ForCausalLM", "qwen3"),
    ("Qwen2ForCausalLM", "qwen2"),
    ("LlamaForCausalLM", "llama"),
    ("MistralForCausalLM", "mistral"),
)


@st.composite
def cases(draw):
    """Draw a case."""
    architecture, model_type = draw(st.sampled_from(KIN))
    head = draw(st.sampled_from([32, 64, 128]))
    layers = draw(st.integers(1, 6))
    return {
        "model": "tiny/qwen3",
        "settings": draw(engine(ranks=(1, 2, 4))),
        "config": {
            "architectures": [architecture],
            "model_type": model_type,
            "num_hidden_layers": layers,
            "layer_types": ["full_attention"] * layers,
            "num_attention_heads": draw(st.sampled_from([4, 8])),
            "num_key_value_heads": draw(st.sampled_from([1, 2, 4])),
            "head_dim": head,
            "hidden_size": 4 * head,
            "intermediate_size": draw(st.sampled_from([128, 192, 512])),
            "vocab_size": draw(st.integers(1000, 2000)),
            "max_position_embeddings": draw(st.sampled_from([2048, 4096])),
        },
    }


VARIATIONS = cases()
