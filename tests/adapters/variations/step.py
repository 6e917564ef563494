"""Full and sliding attention with heads of their own, gated heads, experts and drafting layers."""

from hypothesis import strategies as st

from support.drawing import engine, kinds

NEXTN = 3


@st.composite
def cases(draw):
    """Draw a case: the tiny model, or the true-size one with few layers, whose configuration has drafting layers."""
    drafted = draw(st.booleans())
    types = draw(kinds("full_attention", "sliding_attention", most=6))
    if drafted and draw(st.booleans()):
        # The draft's angles are then in no layer of the target.
        types = ["full_attention"] * len(types)
    count = len(types)
    mixed = sorted(draw(st.sets(st.integers(0, count - 1), min_size=1)))
    lists = count if drafted else count + 1
    text = {
        "layer_types": types if drafted else [*types, "sliding_attention"],
        "num_hidden_layers": count,
        "moe_layers_enum": ",".join(map(str, mixed)),
        "rope_theta": [10000.0] * lists,
        "partial_rotary_factors": [1.0] * lists,
        "num_attention_heads": draw(st.sampled_from([4, 8])),
        "num_attention_groups": draw(st.sampled_from([1, 2])),
        "attention_other_setting.num_attention_heads": draw(st.sampled_from([4, 8])),
        "attention_other_setting.num_attention_groups": draw(st.sampled_from([2, 4])),
        "sliding_window": draw(st.sampled_from([64, 128, 300])),
        "use_head_wise_attn_gate": draw(st.booleans()),
    }
    case = {
        "model": "full/step-3.7-flash" if drafted else "tiny/step-3.7",
        "settings": draw(engine(cache_dtypes=("auto",))),
        "config": {f"text_config.{name}": value for name, value in text.items()},
    }
    if drafted:
        case["drafting"] = f"mtp:{draw(st.integers(1, NEXTN))}"
    return case


VARIATIONS = cases()
