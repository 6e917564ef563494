"""The inventory of a recorded run, and its layers."""

import pytest

from support.traces import process_manifest
from vstate.inventory.from_vllm import Facts, LayerState, components
from vstate.inventory.state_inventory import PADDING_LAYER, StateInventory
from vstate.schemas.errors import VstateError
from vstate.schemas.manifests import PROCESS_FILE, write_manifest
from vstate.schemas.vocabulary import Owner, StateClass


def hybrid_group():
    """Two recurrent layers of 30 + 50 bytes in pages of 100, in a pool whose blocks cost 300."""
    states = [
        LayerState(f"layers.{n}", Owner.TARGET, state_class, "float32", size, 100)
        for n in range(2)
        for state_class, size in ((StateClass.CONV, 30), (StateClass.RECURRENT, 50))
    ]
    return components(states, Facts(group=0, pool=0, block_tokens=64, boundary_tokens=64, block_bytes=300))


@pytest.fixture
def run(tmp_path):
    manifest = process_manifest()
    (group,) = manifest.groups
    group = group.model_copy(update={"components": hybrid_group()})
    manifest = manifest.model_copy(update={"groups": (group,)})
    folder = tmp_path / "run" / "events" / "engine-1"
    folder.mkdir(parents=True)
    write_manifest(folder / PROCESS_FILE, manifest)
    return tmp_path / "run"


def test_layers_add_up_to_what_a_block_costs_padding_layers_too(run):
    inventory = StateInventory.from_run(run)
    rows = [(row.layer, row.state_class, row.block_bytes) for row in inventory.layers()]
    assert rows == [
        ("layers.0", StateClass.CONV, 30),
        ("layers.1", StateClass.CONV, 30),
        ("layers.0", StateClass.RECURRENT, 50),
        ("layers.1", StateClass.RECURRENT, 50),
        ("layers.0", StateClass.PADDING, 20),
        ("layers.1", StateClass.PADDING, 20),
        (PADDING_LAYER, StateClass.PADDING, 100),
    ]
    assert sum(row.block_bytes for row in inventory.layers()) == 300


def test_state_of_one_layer_requires_the_other(run):
    conv, recurrent, _ = StateInventory.from_run(run).components
    assert conv.requires == (recurrent.id,)
    assert recurrent.requires == (conv.id,)


def test_a_folder_without_an_engine_is_told(tmp_path):
    with pytest.raises(VstateError, match="holds no engine process"):
        StateInventory.from_run(tmp_path)


def test_an_engine_core_in_another_process_is_told():
    with pytest.raises(VstateError, match="another process"):
        StateInventory.from_engine(object())
