"""Each term of the bound matters: changed by one, it passes or falls short of what a scheduler's choices allow."""

import random
from functools import cache
from pathlib import Path

import pytest

from support.admissible import Choices, moments
from support.needed_blocks import KINDS, engine_of, held
from vstate.inventory.estimator import RequestShape, Rules
from vstate.inventory.estimator.rules import Kind

FILE = Path(__file__).parents[4] / "inventory" / "estimator" / "bound.py"
MUTATIONS = {
    "last token": ("engine.model_len) - 1", "engine.model_len)"),
    "steps in flight": ("min(steps * engine.chunk, prefill)", "min(engine.chunk, prefill)"),
    "lookahead": ("(0, prefill - flying, flying + lookahead,", "(0, prefill - flying, flying,"),
    "room for the next token": (
        "most = engine.model_len if lookahead else engine.model_len - 1",
        "most = engine.model_len",
    ),
    "padding": ("first = prefill - 1 if padded else prefill", "first = prefill"),
    "padding of a last token": (
        "    if last == prefill:\n        if padded:",
        "    if last == prefill:\n        if False:",
    ),
    "decode steps behind a prefill": ("range(1, engine.behind + 1)", "range(1, 1)"),
    "drafts": ("width = 1 + engine.drafts", "width = 1"),
    "several decode steps": ("decodes * width + lookahead", "width + lookahead"),
    "sure to reach the end": ("else last - 2\n    if final", "else last - 1\n    if final"),
    "window": ("before = final - (final - window + 1) % block\n            if", "before = final - 1\n            if"),
    "chunk": ("before = final - (final + 1) % chunk", "before = final"),
    "reference": ("max(prompt, processed - window) // block - kept", "(processed - window) // block"),
}


@cache
def cases():
    """Engines and requests in small numbers, and the most that each kind of attention can hold."""
    luck = random.Random(0)
    found = []
    for _number in range(150):
        ahead, prefill, drafts = luck.random() < 0.5, luck.randint(1, 14), luck.randint(0, 2)
        choices = Choices(
            prefill=prefill,
            end=prefill + luck.randint(1, 7),
            chunk=luck.randint(1, 6),
            steps=luck.randint(2, 3) if ahead else luck.randint(1, 2),
            asynchronous=ahead,
            drafts=drafts,
            lookahead=luck.choice([0, drafts]),
            model_len=luck.choice([1000, prefill + 1, prefill + 3]),
            caching=luck.random() < 0.5,
        )
        block, size = luck.randint(1, 4), luck.randint(1, 6)
        seen = moments(choices)
        for kind, made in KINDS.items():
            length = size * block if kind == "chunk" else size
            most = max(held(kind, length, block, choices.prefill, *moment) for moment in seen)
            rules = Rules.of((made(block, length),), engine_of(choices))
            found.append((RequestShape(choices.prefill, choices.end - choices.prefill), rules, most))
    return found


def bound_from(source):
    names = {"__name__": "vstate.inventory.estimator.mutated"}
    exec(compile(source, str(FILE), "exec"), names)
    return names["bound"]


def all_equal(source):
    bound = bound_from(source)
    return all(bound(request, rules) == (most,) for request, rules, most in cases())


def test_what_is_mutated_is_right_before():
    assert all(rules.distinct[0].kind is Kind.PAGED for _request, rules, _most in cases())
    assert all_equal(FILE.read_text())


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_caught(name):
    source = FILE.read_text()
    before, after = MUTATIONS[name]
    assert before in source
    assert not all_equal(source.replace(before, after))
