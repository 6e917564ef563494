"""What every family is varied by: ranks, blocks, types of caches, prefix caching."""

from hypothesis import strategies as st

BLOCKS = (32, 64, 96, 128, 160, 256)


@st.composite
def engine(draw, ranks=(1, 2), states=False, cache_dtypes=("auto", "fp8")):
    """Draw engine arguments.

    Args:
        draw: Hypothesis' function.
        ranks: Numbers of tensor-parallel ranks that the model can be shared by.
        states: Whether the model keeps whole states, whose type and caching are then varied.
        cache_dtypes: Types of the cache that vLLM builds the model with.
    """
    settings = {
        "tensor_parallel_size": draw(st.sampled_from(ranks)),
        "kv_cache_dtype": draw(st.sampled_from(cache_dtypes)),
        "max_num_seqs": draw(st.integers(1, 64)),
    }
    if draw(st.booleans()):
        settings["block_size"] = draw(st.sampled_from(BLOCKS))
    if states:
        settings["enable_prefix_caching"] = draw(st.booleans())
        settings["mamba_ssm_cache_dtype"] = draw(st.sampled_from(["auto", "float32", "bfloat16", "float16"]))
        settings["mamba_cache_dtype"] = draw(st.sampled_from(["auto", "float32"]))
    return settings


@st.composite
def kinds(draw, first, second, least=2, most=8):
    """Draw types of layers, at least one of each."""
    between = draw(st.lists(st.sampled_from([first, second]), min_size=least - 2, max_size=most - 2))
    return draw(st.permutations([first, second, *between]))
