"""The bound of many requests at once: the formulas of `bound`, over arrays.

NumPy is imported when it is asked for, so that commands which need no arrays start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from vstate.inventory.estimator.rules import EngineRule, GroupRule, Kind, Rules

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]
else:
    Integers = Any

NEVER = -1
"""Processed tokens of a phase that a request does not go through."""


class Phases(NamedTuple):
    """One phase of every request: see `vstate.inventory.estimator.bound.Phase`; ``last`` is -1 where there is none."""

    first: Integers
    last: Integers
    ahead: Integers
    most: Integers


def bounds(
    prompt_tokens: Integers,
    max_tokens: Integers,
    rules: Rules,
    known_tokens: Integers | None = None,
    encoder_tokens: Integers | None = None,
) -> Integers:
    """Return the most blocks that each request can hold in each group.

    Args:
        prompt_tokens: Tokens of each prompt, shape (requests,).
        max_tokens: Output tokens each may have, shape (requests,).
        rules: The engine's rules.
        known_tokens: Tokens known at each admission, 0 for the prompt alone, shape (requests,); None for all so.
        encoder_tokens: Encoder tokens of each, shape (requests,); None where they are not known.

    Returns:
        Blocks, shape (requests, groups).
    """
    import numpy as np

    engine = rules.engine
    prompt = np.asarray(prompt_tokens, np.int64)
    prefill = prompt if known_tokens is None else np.where(known_tokens > 0, known_tokens, prompt)
    last = np.maximum(prefill, np.minimum(prompt + max_tokens, engine.model_len) - 1)
    phases = _phases(engine, prefill, last)
    each = []
    for rule in rules.distinct:
        if rule.kind is Kind.PAGED:
            each.append(_paged(rule, phases, prompt, prefill))
        elif rule.kind is Kind.STATES:
            each.append(_states(rule, engine, prefill, last))
        elif rule.kind is Kind.ENCODER:
            encoder = rule.encoder_tokens if encoder_tokens is None else encoder_tokens
            each.append(np.broadcast_to(np.asarray(_ceil(encoder, rule.block), np.int64), prompt.shape))
        else:
            each.append(np.full(prompt.shape, rule.fixed, np.int64))
    found: Integers = np.stack([each[index] for index in rules.place], axis=-1)
    return found


def _ceil(tokens: Any, block: Any) -> Any:
    return -(-tokens // block)


def _phases(engine: EngineRule, prefill: Integers, last: Integers) -> list[Phases]:
    import numpy as np

    lookahead, width, zero = engine.lookahead, 1 + engine.drafts, np.zeros_like(prefill)
    flying = np.minimum(engine.steps * engine.chunk, prefill)
    most = np.full_like(prefill, engine.model_len if lookahead else engine.model_len - 1)
    decodes = last > prefill
    phases = [Phases(zero, prefill - flying, flying + lookahead, np.maximum(most, prefill))]
    padded = (prefill == 1) | engine.padded if engine.drafts else zero > 0
    if engine.drafts:
        final = np.where(~decodes & padded, last - 1, NEVER)
        phases.append(Phases(prefill - 1, final, zero + width + lookahead, most))
    for count in range(1, engine.behind + 1):
        flying = np.minimum((engine.steps - count) * engine.chunk, prefill)
        at = prefill - flying
        phases.append(Phases(at, np.where(decodes, at, NEVER), flying + count * width + lookahead, most))
    first = prefill - padded
    final = last - 1 if engine.decodes == 1 else last - 2
    final = np.where(decodes & (final >= first), final, NEVER)
    phases.append(Phases(first, final, zero + engine.decodes * width + lookahead, most))
    return phases


def _let_go(rule: GroupRule, processed: Integers, prompt: Integers) -> Any:
    import numpy as np

    if rule.window >= 0:
        return np.maximum(0, processed - rule.window) // rule.block
    if rule.chunk:
        return processed // rule.chunk * rule.chunk // rule.block
    if rule.decode_window:
        beyond = np.maximum(prompt, processed - rule.decode_window)
        return np.maximum(0, beyond // rule.block - _ceil(prompt, rule.block))
    return 0


def _paged(rule: GroupRule, phases: list[Phases], prompt: Integers, prefill: Integers) -> Integers:
    import numpy as np

    block = rule.block
    period, offset = (rule.chunk, 0) if rule.chunk else (block, max(rule.window, rule.decode_window, 0))
    lets_go = rule.window >= 0 or rule.chunk > 0 or rule.decode_window > 0
    best = np.zeros_like(prefill)
    for first, last, ahead, most in phases:
        there = last >= 0
        final = np.where(there, np.maximum(first, np.minimum(last, most - ahead)) if lets_go else last, 0)
        held = _ceil(np.minimum(final + ahead, most), block) - _let_go(rule, final, prompt)
        best = np.maximum(best, np.where(there, held, 0))
        if lets_go:
            before = final - (final - offset + 1) % period
            held = _ceil(np.minimum(before + ahead, most), block) - _let_go(rule, np.maximum(before, 0), prompt)
            best = np.maximum(best, np.where(there & (before >= first), held, 0))
    if rule.copies:
        inside = (prefill - 1) // rule.hash_block * rule.hash_block
        best = np.maximum(best, np.where(inside % block > 0, inside // block + 2, 0))
    total: Integers = best + rule.extra
    return total


def _states(rule: GroupRule, engine: EngineRule, prefill: Integers, last: Integers) -> Integers:
    import numpy as np

    block, width, cap = rule.block, 1 + engine.drafts, engine.model_len - 1
    copy = (prefill > rule.hash_block).astype(np.int64) * int(rule.copies)
    decodes = last > prefill
    best = np.minimum(1 + _entered(rule, engine, engine.steps, copy), _ceil(prefill, block) + copy)
    for count in range(1, engine.behind + 1):
        entered = _entered(rule, engine, engine.steps - count, copy) + min(count, _ceil(count * width, block))
        end = np.minimum(prefill + count * width, cap)
        held = np.minimum(1 + entered, _ceil(end, block) + copy)
        best = np.where(decodes, np.maximum(best, held), best)
    count = engine.decodes
    end = np.minimum(last - 1 - int(count > 1) + count * width, cap)
    held = np.minimum(1 + min(count, _ceil(count * width, block)), _ceil(end, block))
    best = np.where(decodes, np.maximum(best, held), best)
    jump = int(rule.copies and engine.drafts >= rule.hash_block)
    total: Integers = best + jump + rule.extra
    return total


def _entered(rule: GroupRule, engine: EngineRule, steps: int, copy: Integers) -> Integers:
    """States that so many steps of prefill in flight add at most."""
    import numpy as np

    if rule.checkpoint and engine.chunk > rule.block:
        return copy + steps + (1 if engine.sparse else steps)
    each = _ceil(rule.block, engine.chunk)
    most: Integers = np.maximum(_ceil(steps, each), _ceil(steps - 1, each) + copy)
    return most
