"""Every moment a scheduler may bring a request to, found by going through all its choices one by one.

Written from ``Scheduler.schedule``, ``AsyncScheduler`` and ``update_from_output`` of vLLM 0.32, for lengths so small
that all ways of cutting a prefill, accepting drafts and running ahead can be tried.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choices:
    """An engine and a request in small numbers."""

    prefill: int
    end: int
    chunk: int
    steps: int = 1
    asynchronous: bool = False
    drafts: int = 0
    lookahead: int = 0
    model_len: int = 1000
    caching: bool = True


def moments(choices: Choices) -> set[tuple[int, int]]:
    """All (tokens processed, tokens with a slot) right after a step was scheduled.

    ``choices.end`` is the request's length with all its output: the last token is never computed.
    """
    found: set[tuple[int, int]] = set()
    starts = {0} | ({choices.prefill - 1} if choices.caching else set())
    seen, todo = set(), [(start, ()) for start in starts]
    while todo:
        state = processed, flying = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        for tokens, drafts in _next(choices, processed, flying):
            computed = processed + sum(step[0] for step in flying)
            after = computed + tokens
            found.add((processed, min(after + choices.lookahead, choices.model_len)))
            todo.append((processed, (*flying, (tokens, drafts, after - drafts >= choices.prefill))))
        if flying:
            (tokens, drafts, samples), rest = flying[0], flying[1:]
            for rejected in range(drafts + 1):
                done = processed + tokens - rejected
                produced = done + 1 if samples else done
                if not samples or produced < min(choices.end, choices.model_len):
                    todo.append((done, rest))
    return found


def _next(choices: Choices, processed: int, flying: tuple) -> list[tuple[int, int]]:
    """Steps that may be scheduled now, as (tokens, drafts among them)."""
    if len(flying) >= choices.steps:
        return []
    computed = processed + sum(step[0] for step in flying)
    left = choices.prefill - computed
    room = choices.model_len - computed - 1
    width = min(1 + choices.drafts, room)
    if left > 0:
        chunks = [(tokens, 0) for tokens in range(1, min(choices.chunk, left) + 1)]
        new = not flying and (processed == 0 or (choices.caching and left == 1))
        if choices.drafts and left == 1 and new and choices.drafts + 1 <= room:
            chunks.append((1 + choices.drafts, choices.drafts))
        return chunks
    if width < 1:
        return []
    sampling = [step for step in flying if step[2]]
    if not sampling:
        return [(width, width - 1)] if not flying else []
    placeholders = sum(1 + step[1] for step in sampling)
    sure = computed + 2 - placeholders >= choices.end
    return [] if sure or not choices.asynchronous else [(width, width - 1)]
