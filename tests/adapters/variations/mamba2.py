"""Mamba2 with attention, feed-forward layers and experts in between."""

from hypothesis import strategies as st

from support.drawing import engine


@st.composite
def cases(draw):
    """Draw a case."""
    more = st.lists(st.sampled_from(["linear_attention", "full_attention", "mlp", "moe"]), max_size=6)
    types = draw(st.permutations(["linear_attention", "full_attention", *draw(more)]))
    ranks = draw(st.sampled_from([1, 2, 4]))
    settings = draw(engine(ranks=(ranks,), states=True, cache_dtypes=("auto",)))
    return {
        "model": "tiny/nemotron-h",
        "settings": settings | {"max_num_batched_tokens": 256},
        "config": {
            "layers_block_type": types,
            "mamba_num_heads": draw(st.sampled_from([8, 16])),
            "mamba_head_dim": draw(st.sampled_from([16, 32])),
            "n_groups": draw(st.sampled_from([1, 4])),
            "ssm_state_size": draw(st.sampled_from([16, 32])),
            "conv_kernel": draw(st.sampled_from([3, 4])),
            "num_attention_heads": draw(st.sampled_from([4, 8])),
            "num_key_value_heads": draw(st.sampled_from([1, 2, 4])),
            "intermediate_size": draw(st.sampled_from([128, 256])),
            "moe_intermediate_size": draw(st.sampled_from([64, 128])),
            "moe_shared_expert_intermediate_size": draw(st.sampled_from([64, 128])),
        },
    }


VARIATIONS = cases()
