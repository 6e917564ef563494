"""Tokens and acceptance of a model that is not run."""

import pytest

from vstate.tracer.engines.seeded import SeededModel


def test_tokens_depend_on_seed_request_and_position_only():
    one, two = SeededModel(1, 1000, (0.5,)), SeededModel(2, 1000, (0.5,))
    start = one.start("a")
    assert one.tokens(start, 3, 5) == one.tokens(start, 0, 8)[3:]
    assert one.tokens(start, 0, 40) != one.tokens(one.start("b"), 0, 40)
    assert one.tokens(start, 0, 40) != two.tokens(two.start("a"), 0, 40)
    assert all(16 <= token < 1000 for token in one.tokens(start, 0, 1000))


@pytest.mark.parametrize("rates", [(0.8, 0.5, 0.25), (1.0,), (0.0, 1.0)])
def test_acceptance_follows_the_rates_by_position(rates):
    model, drafted, tries = SeededModel(7, 1000, rates), 3, 4000
    counts = [0] * (drafted + 1)
    start = model.start("a")
    for position in range(tries):
        counts[model.accepted(start, position, drafted)] += 1
    reached = tries
    for place in range(drafted):
        rate = rates[min(place, len(rates) - 1)]
        went_on = sum(counts[place + 1 :])
        if reached:
            assert went_on / reached == pytest.approx(rate, abs=0.05)
        reached = went_on


def test_a_retry_of_the_same_step_accepts_the_same():
    model = SeededModel(7, 1000, (0.5,))
    start = model.start("a")
    assert [model.accepted(start, p, 4) for p in range(50)] == [model.accepted(start, p, 4) for p in range(50)]
