"""GatedDeltaNet with full attention in between, with experts, with a native draft."""

from hypothesis import strategies as st

from support.drawing import engine, kinds


@st.composite
def cases(draw):
    """Draw a case."""
    model = draw(st.sampled_from(["tiny/qwen3-next", "tiny/qwen3.5-mtp"]))
    types = draw(kinds("linear_attention", "full_attention"))
    ranks = draw(st.sampled_from([1, 2]))
    settings = draw(engine(ranks=(ranks,), states=True, cache_dtypes=("auto",)))
    case = {
        "model": model,
        "settings": settings,
        "config": {
            "layer_types": types,
            "num_hidden_layers": len(types),
            "linear_num_key_heads": draw(st.sampled_from([2, 4])),
            "linear_num_value_heads": draw(st.sampled_from([4, 8])),
            "linear_conv_kernel_dim": draw(st.sampled_from([4, 5])),
            "num_attention_heads": draw(st.sampled_from([4, 8])),
            "num_key_value_heads": draw(st.sampled_from([1, 2, 4])),
            "head_dim": draw(st.sampled_from([32, 64])),
        },
    }
    if draw(st.booleans()):
        case["config"] |= {"layer_types": None, "full_attention_interval": draw(st.integers(2, 4))}
        case["config"]["num_hidden_layers"] = draw(st.integers(4, 6))
    if model == "tiny/qwen3-next":
        layers = case["config"]["num_hidden_layers"]
        case["config"]["decoder_sparse_step"] = draw(st.integers(1, 2))
        case["config"]["mlp_only_layers"] = sorted(draw(st.sets(st.integers(0, layers - 1), max_size=2)))
    if model == "tiny/qwen3.5-mtp":
        settings["enable_prefix_caching"] = False
        case["drafting"] = draw(st.sampled_from(["mtp:1", "mtp:2", "mtp:4", "none", "ngram:3"]))
    return case


VARIATIONS = cases()
