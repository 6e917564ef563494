"""Models taken apart, and bytes of tensors: small torch modules with known answers."""

import pytest

torch = pytest.importorskip("torch")

from vstate.inventory.parts import BUILT, built_model, weight_parts  # noqa: E402
from vstate.inventory.tensors import shape_bytes, storage_bytes, tensors_in, view_bytes  # noqa: E402

FLOAT = 4


class Language(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 8)
        self.layer = torch.nn.Linear(8, 8, bias=False)
        self.head = torch.nn.Linear(8, 10, bias=False)
        self.head.weight = self.embed.weight


class Model(torch.nn.Module):
    _tower_model_names = ("visual",)

    def __init__(self):
        super().__init__()
        self.language_model = Language()
        self.visual = torch.nn.Module()
        self.visual.block = torch.nn.Linear(4, 4, bias=False)
        self.visual.merger = torch.nn.Linear(4, 8, bias=False)
        self.visual.register_buffer("mean", torch.zeros(3))


class WithMapping(Model):
    def get_mm_mapping(self):
        return type("Mapping", (), {"connector": ["visual.merger."], "tower_model": ["visual."]})()


def built(model):
    setattr(model, BUILT, built_model(model))
    return model


def parts(model, draft=None):
    return {part.component.id: (part.component.engine_bytes, part.measured) for part in weight_parts(model, draft)}


def test_a_tower_is_told_from_the_language_model_and_a_tied_head_counts_once():
    language, tower = (10 * 8 + 8 * 8) * FLOAT, (16 + 32 + 3) * FLOAT
    expected = {"target/weights": (language, language), "encoder/encoder/tower": (tower, tower)}
    assert parts(built(Model())) == expected


def test_a_projector_is_its_own_part_where_the_model_names_it():
    found = parts(built(WithMapping()))
    assert found["encoder/encoder/projector"] == (32 * FLOAT,) * 2
    assert found["encoder/encoder/tower"] == (19 * FLOAT,) * 2


class WithTwoTowers(Model):
    """As MiMo-V2 Omni: its mark of the tower for sounds took the place of the one for images."""

    _tower_model_names = ("audio",)
    _language_model_names = ("language_model",)

    def __init__(self):
        super().__init__()
        self.audio = torch.nn.Linear(5, 5, bias=False)
        self.head = torch.nn.Linear(7, 7, bias=False)
        self.head.org_vocab_size = 7


def test_a_tower_whose_mark_was_lost_is_a_tower_and_a_head_beside_the_language_model_is_none():
    found = parts(built(WithTwoTowers()))
    assert found["encoder/encoder/tower"] == ((16 + 32 + 3 + 25) * FLOAT,) * 2
    assert found["target/weights"] == ((10 * 8 + 8 * 8 + 49) * FLOAT,) * 2


def test_a_draft_owns_what_it_does_not_share():
    target, draft = built(Model()), built(Language())
    draft.embed, draft.head = target.language_model.embed, target.language_model.head
    assert parts(target, draft)["draft/weights"] == (8 * 8 * FLOAT,) * 2


def test_weights_that_were_packed_after_loading_keep_the_bytes_they_were_built_with():
    model = built(Model())
    before = parts(model)
    model.language_model.layer.weight = torch.nn.Parameter(torch.empty(0))
    assert parts(model) == before


def test_a_model_that_was_not_seen_when_it_was_built_has_no_parts():
    assert weight_parts(Model()) == []


@pytest.mark.long
def test_on_the_meta_device_bytes_are_planned_and_none_are_real():
    with torch.device("meta"):
        model = built(Model())
    assert parts(model)["target/weights"] == ((10 * 8 + 8 * 8) * FLOAT, 0)


def test_views_of_one_storage_are_one_allocation():
    whole = torch.zeros(100, dtype=torch.int8)
    slices = [whole[:10], whole[10:30]]
    assert storage_bytes(slices) == 100
    assert view_bytes([*slices, whole[:10]]) == 30
    assert shape_bytes([slices[0], slices[0]]) == 10


def test_tensors_are_found_in_what_holds_them():
    leaf = torch.zeros(2)
    item = type("Item", (), {"data": {"a": [leaf, (leaf,)], "b": "text"}})()
    assert [id(tensor) for tensor in tensors_in((item, None, 3))] == [id(leaf)] * 2
