"""Each family under variations of its configuration and of the engine's settings, against a live build of each."""

from pkgutil import iter_modules

import pytest

from support.static_shapes import differences, engine_shapes, static_shapes
from support.variations import NAMES, drawn
from vstate.inventory.adapters import families

EXAMPLES = 8
"""Live builds per family; each takes a second or two."""


def test_every_family_is_varied():
    assert {module.name for module in iter_modules(families.__path__)} <= set(NAMES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_a_variation_is_worked_out_as_built(name, live):
    for case in drawn(name, EXAMPLES):
        built = live.build(case)
        assert differences(static_shapes(case, built["platform"]), engine_shapes(built)) == [], case
