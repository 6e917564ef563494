"""The most blocks that a request can hold in each group, over everything a scheduler may do with it.

What is admissible is ``Scheduler.schedule`` and ``AsyncScheduler`` of vLLM 0.32: a prefill is cut anywhere, because
other requests take what they take of a step's budget; drafts are accepted or not; several steps may be in flight, and
blocks are let go only by what has been processed (``KVCacheManager.allocate_slots``). One admission is bounded; a
request that was preempted comes back as another shape, with more to prefill.
"""

from __future__ import annotations

from functools import cache

from vstate.inventory.estimator.request import RequestShape
from vstate.inventory.estimator.rules import EngineRule, GroupRule, Kind, Rules
from vstate.schemas.manifests import EngineSettings, GroupManifest

Phase = tuple[int, int, int, int]
"""Moments at which some tokens are processed and more have slots: the least and the most tokens processed, slots past
them (what is in flight, this step included, and the draft model's lookahead), and the most slots there are. A plain
tuple, because a named one takes longer to make than to use."""


def bound(request: RequestShape, rules: Rules) -> tuple[int, ...]:
    """Return the most blocks that the request can hold in each group, in the groups' order."""
    prompt, output, known, encoder = request
    engine = rules.engine
    prefill = known or prompt
    last = max(prefill, min(prompt + output, engine.model_len) - 1)
    phases = phases_of(engine, prefill, last)
    slots = max([min(final + ahead, most) for _, final, ahead, most in phases])
    each = []
    for rule in rules.distinct:
        if rule.kind is Kind.PAGED:
            each.append(_paged(rule, phases, slots, prompt, prefill))
        elif rule.kind is Kind.STATES:
            each.append(_states(rule, engine, prefill, last))
        elif rule.kind is Kind.ENCODER:
            each.append(-(-(rule.encoder_tokens if encoder is None else encoder) // rule.block))
        else:
            each.append(rule.fixed)
    return tuple([each[index] for index in rules.place])


def bound_blocks(group: GroupManifest, settings: EngineSettings, prompt_tokens: int, max_tokens: int) -> int:
    """Return the bound of one group; for many requests make the rules once and ask `bound`."""
    return bound(RequestShape(prompt_tokens, max_tokens), Rules.of((group,), settings))[0]


def phases_of(engine: EngineRule, prefill: int, last: int) -> list[Phase]:
    """Return the moments at which a request can hold most; ``last`` tokens are computed if it ends by length.

    A decode step is put in flight although drafts may reach past the end, and another one unless those in flight are
    sure to reach it, which is asked of the first alone (``num_output_placeholders`` in ``Scheduler.schedule``).
    """
    steps, decodes, lookahead = engine.steps, engine.decodes, engine.lookahead
    width = 1 + engine.drafts
    flying = min(steps * engine.chunk, prefill)
    most = engine.model_len if lookahead else engine.model_len - 1
    phases = [(0, prefill - flying, flying + lookahead, max(most, prefill))]
    padded = engine.drafts > 0 and (engine.padded or prefill == 1)
    if last == prefill:
        if padded:
            phases.append((prefill - 1, last - 1, width + lookahead, most))
        return phases
    # The end of a prefill in flight, and decode steps behind it.
    for count in range(1, engine.behind + 1):
        flying = min((steps - count) * engine.chunk, prefill)
        at = prefill - flying
        phases.append((at, at, flying + count * width + lookahead, most))
    # Decode steps alone. With several, the others may follow only one that is sure not to reach the end.
    first = prefill - 1 if padded else prefill
    final = last - 1 if decodes == 1 else last - 2
    if final >= first:
        phases.append((first, final, decodes * width + lookahead, most))
    return phases


def _paged(rule: GroupRule, phases: list[Phase], slots: int, prompt: int, prefill: int) -> int:
    """Blocks of a table: those up to the last slot, less those before what is still needed.

    Within a phase the number grows with what is processed and falls by one where a block is let go, so that it is
    largest at the end or right before the last fall.
    """
    block = rule.block
    if rule.window >= 0:
        window = rule.window
        best = 0
        for first, last, ahead, most in phases:
            final = most - ahead
            final = min(final, last)
            final = max(final, first)
            before = final - (final - window + 1) % block
            if before < first or before <= window:
                held = -(-min(final + ahead, most) // block) - max(0, final - window) // block
                best = max(best, held)
            if before >= first:
                held = -(-min(before + ahead, most) // block) - max(0, before - window) // block
                best = max(best, held)
        return best + rule.extra
    if rule.chunk:
        return _chunked(rule, phases)
    if rule.decode_window:
        return _reference(rule, phases, prompt)
    blocks = -(-slots // block)
    if rule.copies:
        # The longest hit that ends inside a block: source and copy are held.
        inside = (prefill - 1) // rule.hash_block * rule.hash_block
        if inside % block:
            blocks = max(blocks, inside // block + 2)
    return blocks + rule.extra


def _chunked(rule: GroupRule, phases: list[Phase]) -> int:
    """Blocks of chunked local attention, which lets a whole chunk go where the next one begins."""
    block, chunk = rule.block, rule.chunk
    best = 0
    for first, last, ahead, most in phases:
        final = max(first, min(last, most - ahead))
        best = max(best, -(-min(final + ahead, most) // block) - final // chunk * chunk // block)
        before = final - (final + 1) % chunk
        if before >= first:
            best = max(best, -(-min(before + ahead, most) // block) - before // chunk * chunk // block)
    return best


def _reference(rule: GroupRule, phases: list[Phase], prompt: int) -> int:
    """Blocks of a prompt and of a window beside it: what lies between them is let go."""
    block, window = rule.block, rule.decode_window
    kept = -(-prompt // block)
    best = 0
    for first, last, ahead, most in phases:
        final = max(first, min(last, most - ahead))
        before = final - (final - window + 1) % block
        for processed in (final, before) if before >= first else (final,):
            gone = max(0, max(prompt, processed - window) // block - kept)
            best = max(best, -(-min(processed + ahead, most) // block) - gone)
    return best


def _states(rule: GroupRule, engine: EngineRule, prefill: int, last: int) -> int:
    """Slots of whole states (``MambaManager.allocate_new_blocks``, mode ``align``).

    The state before what is in flight, one more per step in flight that enters another block, and the draft slots.
    A step may export a second state, and it may copy one. States stand in different blocks of the table, so that
    there are no more than blocks, but for a copy.
    """
    block, drafts = rule.block, engine.drafts
    copy = 1 if rule.copies and prefill > rule.hash_block else 0
    exports = 0 if not rule.checkpoint or engine.chunk <= block else 1 if engine.sparse else engine.steps
    each = -(-block // engine.chunk)
    best = min(_most_states(engine.steps, 0, each, block, drafts, exports, copy), -(-prefill // block) + copy)
    if last > prefill:
        width, cap = 1 + drafts, engine.model_len - 1
        for count in range(1, engine.behind + 1):
            most = _most_states(engine.steps - count, count, each, block, drafts, exports, copy)
            best = max(best, min(most, -(-min(prefill + count * width, cap) // block) + copy))
        count = engine.decodes
        end = last - 1 + width if count == 1 else last - 2 + count * width
        best = max(best, min(_most_states(0, count, each, block, drafts, exports, 0), -(-min(end, cap) // block)))
    if rule.copies and drafts >= rule.hash_block:
        best += 1  # a padded step after a hit may copy its block and leave it at once
    return best + rule.extra


@cache
def _most_states(prefills: int, decodes: int, each: int, block: int, drafts: int, exports: int, copy: int) -> int:
    """Most states with so many steps in flight, draft slots apart.

    Args:
        prefills: Steps of prefill among them.
        decodes: Decode steps behind them.
        each: Steps that a prefill needs to get through a block; it stops at each boundary.
        block: Tokens of a block.
        drafts: Draft tokens of a decode step.
        exports: Steps of prefill that may export a state from inside their chunk.
        copy: Whether one of them may copy a state.
    """
    if exports and prefills:
        entered = prefills + min(prefills, exports) + copy
    elif prefills:
        # A step that copies stays in its block.
        entered = max(-(-prefills // each), -(-(prefills - 1) // each) + copy)
    else:
        entered = 0
    return 1 + entered + min(decodes, -(-decodes * (1 + drafts) // block))
