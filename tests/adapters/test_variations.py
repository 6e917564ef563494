"""Each family under variations of its configuration and of the engine's settings, against a live build of each."""

from importlib import import_module
from pkgutil import iter_modules

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters import variations
from support.static_shapes import differences, engine_shapes, static_shapes
from vstate.inventory.adapters import families

NAMES = [module.name for module in iter_modules(variations.__path__)]
EXAMPLES = 8
"""Live builds per family; each takes a second or two."""


def test_every_family_is_varied():
    assert {module.name for module in iter_modules(families.__path__)} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_variation_is_worked_out_as_built(name, live):
    cases = import_module(f"adapters.variations.{name}").VARIATIONS

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def compare(data):
        case = data.draw(cases)
        built = live.build(case)
        assert differences(static_shapes(case, built["platform"]), engine_shapes(built)) == [], case

    compare()
