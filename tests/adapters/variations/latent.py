"""Latent attention with a sparse index, dense layers before experts, with and without a native draft."""

from hypothesis import strategies as st

from support.drawing import engine


@st.composite
def cases(draw):
    """Draw a case."""
    layers = draw(st.integers(1, 5))
    ranks = draw(st.sampled_from([1, 2, 4]))
    settings = draw(engine(ranks=(ranks,), cache_dtypes=("auto",))) | {"max_model_len": 4096}
    settings.pop("block_size", None)
    return {
        "model": "full/deepseek-v3.2",
        "settings": settings,
        "drafting": draw(st.sampled_from(["none", "mtp:1"])),
        "config": {
            "num_hidden_layers": layers,
            "first_k_dense_replace": draw(st.integers(0, layers)),
            "hidden_size": draw(st.sampled_from([128, 256])),
            "intermediate_size": draw(st.sampled_from([128, 256])),
            "moe_intermediate_size": draw(st.sampled_from([64, 128])),
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "num_attention_heads": draw(st.sampled_from([16, 32])),
            "q_lora_rank": draw(st.sampled_from([128, 192])),
            "qk_nope_head_dim": draw(st.sampled_from([64, 128])),
            "v_head_dim": draw(st.sampled_from([64, 128])),
            "index_n_heads": draw(st.sampled_from([8, 16])),
            "vocab_size": draw(st.integers(1000, 2000)),
        },
    }


VARIATIONS = cases()
