"""One changed term of a family's arithmetic is caught by the comparison with what vLLM builds."""

import sys
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import pytest

from support.mutants import mutants
from support.static_shapes import as_an_engine_takes_it, built_before_loading, differences, engine_shapes
from support.variations import NAMES, drawn, tiny_cases
from vstate.inventory.adapters import families, registry
from vstate.inventory.profiles import find_profile

FAMILIES = [module.name for module in iter_modules(families.__path__)]
EXAMPLES = 8


def loaded(name, tree, path):
    """Run a changed module under the name of the original, which dataclasses look up."""
    module = ModuleType(f"{families.__name__}.{name}")
    module.__file__ = str(path)
    original = sys.modules[module.__name__]
    sys.modules[module.__name__] = module
    try:
        exec(compile(tree, str(path), "exec"), module.__dict__)
    finally:
        sys.modules[module.__name__] = original
    return module


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_changed_term_is_caught(name, live, monkeypatch):
    original = import_module(f"{families.__name__}.{name}")
    path = original.__file__
    cases = tiny_cases(original.ADAPTER) + (drawn(name, EXAMPLES) if name in NAMES else [])
    compared = []
    for case in cases:
        built = live.build(case)
        compared.append((*as_an_engine_takes_it(case), find_profile(built["platform"]), engine_shapes(built)))
    for *asked, wanted in compared:
        assert differences(built_before_loading(*asked), wanted) == []

    missed = []
    changed = list(mutants(open(path, encoding="utf-8").read()))
    assert changed
    for sentence, tree in changed:
        try:
            adapter = loaded(name, tree, path).ADAPTER
        except Exception:  # a module that cannot even be loaded is caught
            continue
        known = registry.adapters() | dict.fromkeys(adapter.architectures, adapter)
        with monkeypatch.context() as patch:
            patch.setattr(registry, "adapters", lambda known=known: known)
            if all(same(asked, wanted) for *asked, wanted in compared):
                missed.append(sentence)
    assert missed == []


def same(asked, wanted):
    try:
        return differences(built_before_loading(*asked), wanted) == []
    except Exception:  # a crash is seen
        return False
