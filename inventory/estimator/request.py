"""A request as the estimator sees it, and what a scheduler did with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class RequestShape(NamedTuple):
    """What is known of a request when it is admitted.

    Attributes:
        prompt_tokens: Tokens of its prompt.
        max_tokens: Output tokens it may have.
        known_tokens: Prompt and output tokens known at this admission, all of which are prefilled; 0 for the prompt
            alone. A resumed request knows what it has produced.
        encoder_tokens: Tokens of its encoder's output, for cross attention; None where that is not known.
    """

    prompt_tokens: int
    max_tokens: int
    known_tokens: int = 0
    encoder_tokens: int | None = None


class Step(NamedTuple):
    """One step of the engine that computed tokens of the request.

    Attributes:
        tokens: Tokens scheduled past what was computed or hit, drafts included.
        drafts: Draft tokens among them.
        accepted: Drafts that turned out right; what is not is rolled back when the step is processed.
        ahead: Steps of the same attempt that were in flight when this one was scheduled.
        stale_tokens: Tokens still in flight of the attempt before.
    """

    tokens: int
    drafts: int = 0
    accepted: int = 0
    ahead: int = 0
    stale_tokens: int = 0


class Attempt(NamedTuple):
    """What happened between an admission and the preemption or end that followed.

    Attributes:
        steps: Its steps in order.
        hit_tokens: Tokens of the cached prefix.
        known_tokens: Prompt and output tokens known at the admission; 0 for the prompt alone.
    """

    steps: tuple[Step, ...]
    hit_tokens: int = 0
    known_tokens: int = 0


Trajectory = Sequence[Attempt]


class StepBlocks(NamedTuple):
    """Blocks of each group around one step.

    Attributes:
        peak: Most blocks held at any moment while the step was scheduled; source and copy of a hit that ends inside
            a block both count.
        held: Blocks held when it was scheduled.
    """

    peak: tuple[int, ...]
    held: tuple[int, ...]
