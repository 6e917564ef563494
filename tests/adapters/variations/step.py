"""Full and sliding attention with heads of their own, gated heads and experts."""

from hypothesis import strategies as st

from support.drawing import engine, kinds


@st.composite
def cases(draw):
    """Draw a case."""
    types = draw(kinds("full_attention", "sliding_attention", most=6))
    count = len(types)
    mixed = sorted(draw(st.sets(st.integers(0, count - 1), min_size=1)))
    return {
        "model": "tiny/step-3.7",
        "settings": draw(engine(cache_dtypes=("auto",))),
        "config": {
            "text_config.layer_types": [*types, "sliding_attention"],
            "text_config.num_hidden_layers": count,
            "text_config.moe_layers_enum": ",".join(map(str, mixed)),
            "text_config.rope_theta": [10000.0] * (count + 1),
            "text_config.partial_rotary_factors": [1.0] * (count + 1),
            "text_config.num_attention_heads": draw(st.sampled_from([4, 8])),
            "text_config.num_attention_groups": draw(st.sampled_from([1, 2])),
            "text_config.attention_other_setting.num_attention_heads": draw(st.sampled_from([4, 8])),
            "text_config.attention_other_setting.num_attention_groups": draw(st.sampled_from([2, 4])),
            "text_config.sliding_window": draw(st.sampled_from([64, 128, 300])),
            "text_config.use_head_wise_attn_gate": draw(st.booleans()),
        },
    }


VARIATIONS = cases()
