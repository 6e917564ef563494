"""Blocks that a request holds in each group after every step of a given trajectory, exactly."""

from __future__ import annotations

from vstate.inventory.estimator.request import Attempt, RequestShape, Step, StepBlocks, Trajectory
from vstate.inventory.estimator.rules import EngineRule, Rules
from vstate.inventory.estimator.tables import Moment, new_table


def occupancy(request: RequestShape, trajectory: Trajectory, rules: Rules) -> tuple[StepBlocks, ...]:
    """Return what the request holds around each step of all its attempts, in order.

    Each attempt begins with empty tables: a preemption lets go of everything.
    """
    return tuple(found for attempt in trajectory for found in _attempt(request, attempt, rules))


def _attempt(request: RequestShape, attempt: Attempt, rules: Rules) -> list[StepBlocks]:
    tables = [new_table(rule, rules.engine) for rule in rules.distinct]
    found = []
    for moment in _moments(request, attempt, rules.engine):
        each = [table.step(moment) for table in tables]
        peak, held = zip(*(each[index] for index in rules.place), strict=True)
        found.append(StepBlocks(peak, held))
    return found


def _moments(request: RequestShape, attempt: Attempt, engine: EngineRule) -> list[Moment]:
    """Say what each step is called with (``KVCacheManager.allocate_slots``)."""
    moments = []
    start_known = attempt.known_tokens or request.prompt_tokens
    computed, known, processed_steps, sampling = attempt.hit_tokens, start_known, 0, False
    flying: list[tuple[Step, bool]] = []
    for number, step in enumerate(attempt.steps):
        while processed_steps < number - step.ahead:
            done, samples = flying.pop(0)
            computed -= done.drafts - done.accepted
            known += 1 + done.accepted if samples else 0
            processed_steps += 1
        in_flight = step.stale_tokens + sum(other.tokens for other, _ in flying)
        end = computed + step.tokens
        moments.append(
            Moment(
                computed=computed,
                processed=max(0, min(computed, engine.model_len) - in_flight),
                end=end,
                slots=min(end + engine.lookahead, engine.model_len),
                known=known,
                prompt=request.prompt_tokens,
                hit=attempt.hit_tokens if number == 0 else 0,
                encoder=request.encoder_tokens or 0,
            )
        )
        sampling = sampling or end - step.drafts >= start_known
        flying.append((step, sampling))
        computed = end
    return moments
