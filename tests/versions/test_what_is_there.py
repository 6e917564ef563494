"""Deciding by what an engine has: optional anchors, parameters, and attributes by another name."""

from types import SimpleNamespace

import pytest

from vstate.inventory.from_vllm import admission_cap_blocks, is_host_resident
from vstate.tracer.anchors import Anchor, check_anchor, misfits
from vstate.tracer.versions import method_if_any, takes


@pytest.mark.parametrize(
    ("path", "parameters", "optional", "fits"),
    [
        ("TestCase.fail", ("msg",), False, True),
        ("TestCase.fail", ("message",), False, False),
        ("TestCase.give_up", (), False, False),
        ("TestCase.give_up", (), True, True),
        ("TestCase.fail", ("message",), True, False),
    ],
    ids=["as expected", "renamed parameter", "absent", "absent, optional", "renamed parameter, optional"],
)
def test_an_anchor_fits_by_what_is_there(path, parameters, optional, fits):
    state = check_anchor(Anchor("unittest.case", path, parameters, optional=optional))
    assert state.fits is fits
    assert (misfits((state,)) == []) is fits
    assert state.found


def test_an_optional_anchor_of_a_module_that_is_gone_does_not_fit():
    assert not check_anchor(Anchor("unittest.gone", "TestCase.fail", (), optional=True)).fits


def test_a_parameter_is_taken_by_name_or_by_any_name():
    assert takes(lambda a, prefill_end=0: None, "prefill_end")
    assert takes(lambda a, **others: None, "prefill_end")
    assert not takes(lambda a, *others: None, "prefill_end")


def test_a_method_that_is_absent_is_none():
    assert method_if_any([], "append") is not None
    assert method_if_any([], "unpin_blocks") is None


def test_the_admission_cap_goes_by_two_names():
    assert admission_cap_blocks(SimpleNamespace(max_admission_blocks_per_request=3)) == 3
    assert admission_cap_blocks(SimpleNamespace(_max_admission_blocks_per_request=3)) == 3
    assert admission_cap_blocks(SimpleNamespace(max_admission_blocks_per_request=None)) == 0
    with pytest.raises(AttributeError):
        admission_cap_blocks(SimpleNamespace())


def test_a_tensor_that_does_not_say_where_it_lies_lies_on_the_device():
    assert not is_host_resident(SimpleNamespace(size=1))
    assert is_host_resident(SimpleNamespace(host_resident=True))
