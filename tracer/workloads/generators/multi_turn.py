"""Conversations: a turn repeats what was said and waits for the answer before it."""

from __future__ import annotations

from collections.abc import Iterator

from vstate.schemas.workload import PromptSegment, Segment, Trigger, WorkloadRequest
from vstate.tracer.workloads.generators.draws import POISSON, Draws, GeneratorOptions

HEADER = (
    f"{POISSON}; conversations arrive,",
    "  a turn waits for the answer before it and an exponential think time; its prompt repeats what was said,",
    "  with tokens of the workload's own in the place of each answer, so that an answer itself is not reused",
)
OPTIONS = frozenset({"turns", "think_s"})


def make(options: GeneratorOptions) -> Iterator[WorkloadRequest]:
    """Make the requests, conversation by conversation."""
    draws = Draws(options)
    starts = draws.arrivals()
    prompt: tuple[PromptSegment, ...] = ()
    for number in range(options.requests):
        conversation, turn = divmod(number, options.turns)
        name = f"chat-{conversation}/{turn}"
        if turn:
            think_s = round(draws.exponential(options.think_s), 6)
            when = Trigger(after=f"chat-{conversation}/{turn - 1}", delay_s=think_s)
        else:
            when, prompt = next(starts), ()
        prompt += (Segment(name=f"question-{name}", length=draws.tokens(options.input_tokens)),)
        output = draws.tokens(options.output_tokens)
        yield WorkloadRequest(id=name, when=when, prompt=prompt, output=output)
        prompt += (Segment(name=f"answer-{name}", length=output),)
