"""Draws the cases of a family: the same ones every time, in every test."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from hypothesis import HealthCheck, Phase, given, settings

from adapters import variations
from vstate.tracer.models.tiny import TINY_MODELS

NAMES = tuple(module.name for module in iter_modules(variations.__path__))


@cache
def drawn(name, count):
    """Return ``count`` different cases of a family's strategy, or all that it has."""
    strategy = import_module(f"adapters.variations.{name}").VARIATIONS
    cases = []

    @settings(
        max_examples=10 * count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(case):
        if case not in cases:
            cases.append(case)

    collect()
    # The first draws are the smallest of everything; what comes later is varied.
    return cases[:: max(1, len(cases) // count)][:count]


def tiny_cases(adapter):
    """Return the tiny models of a family."""
    import json

    from vstate.tracer.models.files import package_text

    return [
        {"model": f"tiny/{name}"}
        for name, model in TINY_MODELS.items()
        if json.loads(package_text("tiny", model.config))["architectures"][0] in adapter.architectures
    ]
