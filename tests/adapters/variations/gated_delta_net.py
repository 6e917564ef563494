"""GatedDeltaNet with full attention in between: both generations, dense, with experts, with vision, with drafts."""

from hypothesis import strategies as st

from support.drawing import engine

NEXT, TEXT, VISION = "tiny/qwen3-next", "tiny/qwen3.5-mtp", "tiny/qwen3.5-vl-mtp"
KINDS = ("linear_attention", "full_attention")
EXPERTS = {
    "model_type": "qwen3_5_moe_text",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}
STRETCHED = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
THREE_AXES = {"rope_type": "default", "mrope_section": [6, 5, 5], "mrope_interleaved": True}


@st.composite
def layers(draw, drafted):
    """Draw how many layers there are, and their types or how often attention comes."""
    if draw(st.booleans()):
        return {
            "layer_types": None,
            "full_attention_interval": draw(st.integers(2, 4)),
            "num_hidden_layers": draw(st.integers(4, 6)),
        }
    types = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
    # A model without any attention is drawn where a draft has some: blocks of states alone are no part of a family.
    types = types if drafted else draw(st.permutations([*types, "full_attention"]))
    return {"layer_types": types, "num_hidden_layers": len(types)}


@st.composite
def angles(draw, head, vision):
    """Draw how heads are turned."""
    kinds = [{"rope_type": "default", "partial_rotary_factor": draw(st.sampled_from([0.25, 0.5]))}, STRETCHED]
    if vision and head == 64:
        kinds += [THREE_AXES | {"partial_rotary_factor": 0.5}] * 2
    return draw(st.sampled_from(kinds)) | {"rope_theta": 10000.0}


@st.composite
def cases(draw):
    """Draw a case."""
    model = draw(st.sampled_from([NEXT, TEXT, VISION]))
    ranks = draw(st.sampled_from([1, 2, 4]))
    settings = draw(engine(ranks=(ranks,), states=True))
    drafted, modules = draw(st.booleans()), draw(st.integers(1, 2))
    head = draw(st.sampled_from([32, 64]))
    text = draw(layers(drafted)) | {
        "linear_num_key_heads": draw(st.sampled_from([ranks, 4])),
        "linear_num_value_heads": draw(st.sampled_from([4, 8])),
        "linear_key_head_dim": draw(st.sampled_from([32, 128])),
        "linear_conv_kernel_dim": draw(st.sampled_from([4, 5])),
        "num_attention_heads": draw(st.sampled_from([4, 8])),
        "num_key_value_heads": draw(st.sampled_from([1, 2, 4])),
        "head_dim": head,
        "rope_parameters": draw(angles(head, model == VISION)),
        "qkv_bias": draw(st.booleans()),
        "attn_output_gate": draw(st.booleans()),
        "layer_scale": draw(st.booleans()),
        "tie_word_embeddings": draw(st.booleans()),
        "shared_expert_intermediate_size": draw(st.sampled_from([0, 64, 128])),
    }
    whole = {}
    if model == NEXT:
        text["num_nextn_predict_layers"] = modules
        text["num_experts"] = draw(st.sampled_from([4, 8]))
        # Layers of a draft are counted from 0 by the same rule, and one of them must have experts as well.
        if modules == 2 or not drafted:
            most = min(2 if drafted else 3, text["num_hidden_layers"])
            text["decoder_sparse_step"] = draw(st.integers(1, most))
        elif text["num_hidden_layers"] > 1:
            text["mlp_only_layers"] = [text["num_hidden_layers"] - 1]
    else:
        text["mtp_num_hidden_layers"] = modules
        text["mamba_ssm_dtype"] = draw(st.sampled_from([None, "float32", "bfloat16"]))
        if draw(st.booleans()):
            kind = "CausalLM" if model == TEXT else "ConditionalGeneration"
            whole = {"architectures": [f"Qwen3_5MoeFor{kind}"], "model_type": "qwen3_5_moe"}
            text |= EXPERTS
    if model == VISION:
        text = {f"text_config.{name}": value for name, value in text.items()} | {"vision_config.num_heads": 4}
    if drafted:
        drafting = f"mtp:{modules * draw(st.integers(1, 2))}"
    else:
        drafting = draw(st.sampled_from(["none", "ngram:3"]))
    if model != NEXT:
        settings["enable_prefix_caching"] = False
    return {"model": model, "settings": settings, "config": whole | text, "drafting": drafting}


VARIATIONS = cases()
