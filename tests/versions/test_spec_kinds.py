"""Each kind of spec that vLLM has is given a state class, and those of a layer that says more its own."""

import inspect
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
interface = pytest.importorskip("vllm.v1.kv_cache_interface")

from vstate.inventory.from_vllm import group_states, layer_pages, layer_states  # noqa: E402
from vstate.schemas.vocabulary import StateClass  # noqa: E402

ATTENTION = {"block_size": 16, "num_kv_heads": 2, "head_size": 8, "dtype": torch.bfloat16}
PAGES = {"block_size": 16, "page_size": 512}
KINDS = {
    "FullAttentionSpec": (ATTENTION, [StateClass.FULL_KV]),
    "SinkFullAttentionSpec": (ATTENTION | {"sink_len": 16}, [StateClass.FULL_KV]),
    "RSWASpec": (ATTENTION | {"rswa_window": 32}, [StateClass.FULL_KV]),
    "SlidingWindowSpec": (ATTENTION | {"sliding_window": 32}, [StateClass.SLIDING_KV]),
    "ChunkedLocalAttentionSpec": (ATTENTION | {"attention_chunk_size": 32}, [StateClass.SLIDING_KV]),
    "MLAAttentionSpec": (ATTENTION | {"num_kv_heads": 1}, [StateClass.LATENT_KV]),
    "SlidingWindowMLASpec": (ATTENTION | {"num_kv_heads": 1, "sliding_window": 32}, [StateClass.LATENT_KV]),
    "CrossAttentionSpec": (ATTENTION, [StateClass.CROSS_KV]),
    "CircularBufferSpec": (ATTENTION, [StateClass.CONV]),
    "KpoolTailSpec": (ATTENTION | {"sliding_window": 32}, [StateClass.CONV]),
    "HiddenStateCacheSpec": (ATTENTION | {"num_kv_heads": 1}, [StateClass.WORKSPACE]),
    "HiSparseHotSpec": (PAGES | {"blocks_per_request": 2}, [StateClass.WORKSPACE]),
    "HiSparseResidentSpec": (PAGES, [StateClass.WORKSPACE]),
    "MambaSpec": (
        {"block_size": 16, "shapes": ((4, 3), (2, 8, 8)), "dtypes": (torch.bfloat16, torch.float32)},
        [StateClass.CONV, StateClass.RECURRENT],
    ),
}
NOT_KEPT = {"KVCacheSpec", "AttentionSpec", "EncoderOnlyAttentionSpec", "UniformTypeKVCacheSpecs"}
"""Parents of the others, one that keeps nothing, and a collection."""


def kinds_of_this_vllm():
    members = inspect.getmembers(interface, inspect.isclass)
    return {name for name, kind in members if issubclass(kind, interface.KVCacheSpec)} - NOT_KEPT


def test_every_kind_of_this_vllm_is_here():
    assert kinds_of_this_vllm() <= set(KINDS)


@pytest.mark.parametrize("kind", sorted(kinds_of_this_vllm() & set(KINDS)))
def test_a_kind_has_its_classes_and_all_its_bytes(kind):
    arguments, classes = KINDS[kind]
    spec = getattr(interface, kind)(**arguments)
    states = layer_states("model.layers.0.attn", spec, {})
    assert [state.state_class for state in states] == classes
    assert sum(state.block_bytes for state in states) == spec.page_size_bytes


def test_a_convolution_under_a_windows_spec_is_no_paged_kv():
    layer = type("ShortConv", (), {})()
    spec = interface.SlidingWindowSpec(**ATTENTION, sliding_window=4)
    (state,) = layer_states("model.layers.0.conv", spec, {"model.layers.0.conv": layer})
    assert state.state_class is StateClass.CONV


def test_an_indexer_is_no_attention():
    spec = interface.MLAAttentionSpec(**(ATTENTION | {"num_kv_heads": 1}))
    (state,) = layer_states("model.layers.0.self_attn.indexer.k_cache", spec, {})
    assert state.state_class is StateClass.SPARSE_INDEX


def test_layers_of_two_sizes_in_one_group_keep_their_own():
    """A scheduler is given the spec of one layer for all of a group; where tensors lie still tells their pages."""
    tensor = interface.KVCacheTensor
    if "layer_stride" not in inspect.signature(tensor).parameters:
        pytest.skip("this vLLM's tensors do not say where a layer lies")
    index = interface.MLAAttentionSpec(**(ATTENTION | {"num_kv_heads": 1, "head_size": 132, "dtype": torch.uint8}))
    latent = interface.MLAAttentionSpec(**(ATTENTION | {"num_kv_heads": 1, "head_size": 576}))
    names, blocks = ("model.layers.0.self_attn.indexer.k_cache", "model.layers.0.self_attn.attn"), 10
    specs = dict(zip(names, (index, latent), strict=True))
    size = blocks * (index.page_size_bytes + latent.page_size_bytes)
    tensors = [
        tensor(
            size=size,
            layers=[name],
            layer_stride=blocks * spec.page_size_bytes,
            block_stride=spec.page_size_bytes,
        )
        for name, spec in specs.items()
    ]
    config = SimpleNamespace(kv_cache_tensors=tensors)
    group = SimpleNamespace(layer_names=[*names], kv_cache_spec=index)
    layers = {name: SimpleNamespace(get_kv_cache_spec=lambda _, own=spec: own) for name, spec in specs.items()}
    vllm_config = SimpleNamespace(speculative_config=None)
    for known in (layers, {}):
        states = group_states(group, vllm_config, known, layer_pages(config))
        assert [state.state_class for state in states] == [StateClass.SPARSE_INDEX, StateClass.LATENT_KV]
        assert [state.block_bytes for state in states] == [index.page_size_bytes, latent.page_size_bytes]
    assert {state.dtype for state in group_states(group, vllm_config, layers, layer_pages(config))} == {
        "uint8",
        "bfloat16",
    }
