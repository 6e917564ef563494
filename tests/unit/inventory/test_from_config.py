"""The inventory that is worked out from a configuration: its API, its refusals, and figures that others published."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from vstate.inventory.adapters import registry
from vstate.inventory.adapters.plan import AttentionLayer, ModelPlan, StateLayer, StatePart
from vstate.inventory.adapters.registry import Adapter, adapters, find_adapter
from vstate.inventory.component_schema import COMPONENT_SCHEMA
from vstate.inventory.grouping import group_layers
from vstate.inventory.pages import Page, PageKind
from vstate.inventory.profiles import PROFILES, find_profile
from vstate.inventory.serving import ServingSettings
from vstate.inventory.state_inventory import StateInventory
from vstate.schemas.component import StateComponent
from vstate.schemas.errors import VstateError
from vstate.schemas.vocabulary import Owner, StateClass

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 100,
    "max_position_embeddings": 4096,
    "dtype": "bfloat16",
}
CPU = find_profile("cpu")


def settings(**values):
    return ServingSettings(**{"num_gpu_blocks_override": 100} | values)


def worked_out(config=LLAMA, profile=CPU, **values):
    return StateInventory.from_config(config, settings(**values), profile)


def test_a_dense_model_by_hand():
    inventory = worked_out()
    (group,) = inventory.groups
    (component,) = group.components
    head, element = 16, 2
    assert component.useful_bytes_per_unit == 3 * 2 * 2 * head * element
    assert component.charged_bytes_per_block == 128 * component.useful_bytes_per_unit
    assert inventory.pools[0].total_bytes == 100 * component.charged_bytes_per_block
    assert inventory.assumed


def test_lookup_by_class_and_owner():
    inventory = worked_out()
    assert [c.id for c in inventory.find(StateClass.FULL_KV)] == ["g0/target/full_kv"]
    assert [c.id for c in inventory.find(owner=Owner.TARGET)] == ["g0/target/full_kv", "target/weights"]
    assert inventory.find(StateClass.CONV) == ()
    assert inventory.find(StateClass.FULL_KV, Owner.DRAFT) == ()


def test_arrow_and_frame_hold_every_field():
    inventory = worked_out()
    table, frame = inventory.to_arrow(), inventory.to_frame()
    assert set(table.schema.names) == set(StateComponent.model_fields)
    assert table.schema.equals(COMPONENT_SCHEMA, check_metadata=True)
    assert [StateComponent.model_validate(row) for row in table.to_pylist()] == list(inventory.components)
    assert frame.height == len(inventory.components)
    assert frame.filter(frame["state_class"] == "full_kv")["layers"].to_list() == [list(inventory.groups[0].layers)]


def test_layers_add_up_to_what_a_block_costs():
    inventory = worked_out()
    assert sum(row.block_bytes for row in inventory.layers()) == inventory.pools[0].block_bytes


def test_no_engine_is_imported():
    code = (
        "import sys, json; from vstate.inventory.state_inventory import StateInventory;"
        "from vstate.inventory.serving import ServingSettings; from vstate.inventory.profiles import find_profile;"
        f"StateInventory.from_config({LLAMA!r}, ServingSettings(num_gpu_blocks_override=9), find_profile('cpu'));"
        "print(sorted({'vllm', 'torch', 'transformers', 'polars', 'duckdb', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"architectures": ["NobodyKnows"]}, "no adapter knows the architecture NobodyKnows"),
        ({"architectures": None}, "names no architectures"),
        ({"num_hidden_layers": None}, "LlamaForCausalLM: the configuration has no num_hidden_layers"),
        ({"num_hidden_layers": "three"}, "num_hidden_layers is 'three', which is no whole number"),
        ({"dtype": None}, "says no dtype"),
        ({"dtype": "int3"}, "unknown element type 'int3'"),
    ],
)
def test_what_is_not_known_is_refused_by_name(change, refusal):
    with pytest.raises(VstateError, match=refusal):
        worked_out(LLAMA | change)


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({"tensor_parallel_size": 3}, "cannot be shared by 3 tensor-parallel ranks"),
        ({"kv_cache_dtype": "nvfp4"}, "cache type 'nvfp4' is not known"),
        ({"block_size": 33}, "a block of 33 tokens does not fit"),
        ({"num_gpu_blocks_override": None}, "nothing says how large the pool is"),
        ({"num_gpu_blocks_override": None, "kv_cache_memory_bytes": 10}, "less than two blocks"),
    ],
)
def test_settings_that_do_not_fit_are_refused(values, refusal):
    with pytest.raises(VstateError, match=refusal):
        worked_out(**values)


def test_profiles_say_what_stands_behind_them():
    assert {name: str(profile.evidence) for name, profile in PROFILES.items()} == {
        "cpu": "booked",
        "cpu-avx512_bf16": "booked",
        "cpu-avx512_bf16-amx_tile": "booked",
        "cuda-hopper": "assumed",
    }
    assert worked_out(profile=find_profile("cuda-hopper")).groups[0].block_tokens == 16
    with pytest.raises(VstateError, match="unknown platform profile 'abacus'"):
        find_profile("abacus")


def test_memory_is_shared_out_in_whole_blocks():
    block = worked_out().pools[0].block_bytes
    given = worked_out(num_gpu_blocks_override=None, kv_cache_memory_bytes=10 * block + 1)
    assert given.pools[0].num_blocks == 10
    weights = sum(component.engine_bytes for component in given.outside)
    device = worked_out(num_gpu_blocks_override=None, device_memory_bytes=weights * 4, gpu_memory_utilization=0.5)
    assert device.pools[0].num_blocks == weights // block


@pytest.fixture
def registered(monkeypatch):
    """Registers adapters as an installed package would."""

    def register(value):
        point = EntryPoint("somebody", value, registry.ENTRY_POINTS)
        monkeypatch.setattr(registry, "entry_points", lambda group: [point])
        adapters.cache_clear()

    yield register
    adapters.cache_clear()


def ring_plan(reader, context):
    state = StatePart(StateClass.RECURRENT, (reader.integer("rings"), 8), "float32")
    attention = AttentionLayer("a", StateClass.FULL_KV, 1, 16, 16, context.dtype)
    return ModelPlan((attention, StateLayer("s", (state,))), (), 1024, 64, 1, 16)


RING_ADAPTER = Adapter("ring", 1, ("RingForCausalLM",), ring_plan)


def test_somebody_else_s_adapter_is_found(registered):
    registered(f"{__name__}:RING_ADAPTER")
    config = {"architectures": ["RingForCausalLM"], "rings": 100, "dtype": "bfloat16"}
    assert find_adapter(config) is RING_ADAPTER
    classes = {c.state_class for c in worked_out(config).components}
    assert classes == {StateClass.FULL_KV, StateClass.RECURRENT, StateClass.PADDING}
    with pytest.raises(VstateError, match="RingForCausalLM: the configuration has no rings"):
        worked_out(config | {"rings": None})


@pytest.mark.parametrize("value", ["nowhere_at_all:X", f"{__name__}:LLAMA"])
def test_a_registered_adapter_that_is_none_is_named(registered, value):
    registered(value)
    with pytest.raises(VstateError, match="somebody"):
        worked_out()


def page(kind, count, **values):
    return {f"{kind.name}.{index}": Page(kind, 16, token_bytes=64, **values) for index in range(count)}


def group_sizes(groups):
    return [(group.first.kind.name, len(group.pages)) for group in groups]


def test_nearly_equal_numbers_of_layers_are_padded_and_not_split():
    """vllm#29303: 18 full and 18 sliding layers and one full layer of a draft waste one layer of 18, not 17 of 19."""
    groups = group_layers(page(PageKind.FULL, 19) | page(PageKind.SLIDING, 18, window_tokens=128))
    assert group_sizes(groups) == [("FULL", 19), ("SLIDING", 18)]


def test_a_repeated_pattern_is_split_evenly():
    """VLLM's own example: 10 full and 20 sliding layers are three groups of 10."""
    groups = group_layers(page(PageKind.FULL, 10) | page(PageKind.SLIDING, 20, window_tokens=128))
    assert group_sizes(groups) == [("FULL", 10), ("SLIDING", 10), ("SLIDING", 10)]
    assert list(groups[1].pages)[:2] == ["SLIDING.0", "SLIDING.2"]
