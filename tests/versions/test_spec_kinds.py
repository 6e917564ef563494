"""Each kind of spec that vLLM has is given a state class, and those of a layer that says more its own."""

import inspect

import pytest

torch = pytest.importorskip("torch")
interface = pytest.importorskip("vllm.v1.kv_cache_interface")

from vstate.inventory.from_vllm import layer_states  # noqa: E402
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
