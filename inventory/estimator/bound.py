"""The most blocks that a request can hold in each group, over everything a scheduler may do with it.

What is admissible is ``Scheduler.schedule`` and ``AsyncScheduler`` of vLLM 0.32: a prefill is cut anywhere, because
other requests take what they take of a step's budget; drafts are accepted or not; several steps may be in flight, and
blocks are let go only by what has been processed (``KVCacheManager.allocate_slots``). One admission is bounded; a
request that was preempted comes back as another shape, with more to prefill.
"""

from __future__ import annotations

from typing import NamedTuple

from vstate.inventory.estimator.request import RequestShape
from vstate.inventory.estimator.rules import EngineRule, GroupRule, Kind, Rules
from vstate.schemas.manifests import EngineSettings, GroupManifest


class Phase(NamedTuple):
    """Moments at which ``processed`` tokens are done and ``ahead`` more have slots.

    Attributes:
        first: Least processed tokens.
        last: Most processed tokens.
        ahead: Slots past them: what is in flight, this step included, and the draft model's lookahead.
        most: No more slots than that.
    """

    first: int
    last: int
    ahead: int
    most: int


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
    phases = [Phase(0, prefill - flying, flying + lookahead, max(most, prefill))]
    padded = engine.drafts > 0 and (engine.padded or prefill == 1)
    if last == prefill:
        if padded:
            phases.append(Phase(prefill - 1, last - 1, width + lookahead, most))
        return phases
    # The end of a prefill in flight, and decode steps behind it.
    for count in range(1, engine.behind + 1):
        flying = min((steps - count) * engine.chunk, prefill)
        at = prefill - flying
        phases.append(Phase(at, at, flying + count * width + lookahead, most))
    # Decode steps alone. With several, the others may follow only one that is sure not to reach the end.
    first = prefill - 1 if padded else prefill
    final = last - 1 if decodes == 1 else last - 2
    if final >= first:
        phases.append(Phase(first, final, decodes * width + lookahead, most))
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
    if rule.chunk or rule.decode_window:
        return max(_most_in_phase(rule, phase, prompt) for phase in phases)
    blocks = -(-slots // block)
    if rule.copies:
        # The longest hit that ends inside a block: source and copy are held.
        inside = (prefill - 1) // rule.hash_block * rule.hash_block
        if inside % block:
            blocks = max(blocks, inside // block + 2)
    return blocks + rule.extra


def _most_in_phase(rule: GroupRule, phase: Phase, prompt: int) -> int:
    first, last, ahead, most = phase
    final = max(first, min(last, most - ahead))
    if rule.chunk:
        before = final - (final + 1) % rule.chunk
    else:
        before = final - (final - rule.decode_window + 1) % rule.block
    candidates = (final, before) if before >= first else (final,)
    return max(
        -(-min(processed + ahead, most) // rule.block) - _let_go(rule, processed, prompt) for processed in candidates
    )


def _let_go(rule: GroupRule, processed: int, prompt: int) -> int:
    """Blocks of chunked or reference attention that are let go once so many tokens are processed."""
    if rule.chunk:
        return processed // rule.chunk * rule.chunk // rule.block
    return max(0, max(prompt, processed - rule.decode_window) // rule.block - -(-prompt // rule.block))


def _states(rule: GroupRule, engine: EngineRule, prefill: int, last: int) -> int:
    """Slots of whole states (``MambaManager.allocate_new_blocks``, mode ``align``).

    The state before what is in flight, one more per step in flight that enters another block, and the draft slots.
    A step may export a second state, and it may copy one. States stand in different blocks of the table, so that
    there are no more than blocks, but for a copy.
    """
    block, width = rule.block, 1 + engine.drafts
    copy = int(rule.copies and prefill > rule.hash_block)
    best = min(1 + _entered(rule, engine, engine.steps, copy), -(-prefill // block) + copy)
    if last > prefill:
        cap = engine.model_len - 1
        for count in range(1, engine.behind + 1):
            entered = _entered(rule, engine, engine.steps - count, copy) + min(count, -(-count * width // block))
            end = min(prefill + count * width, cap)
            best = max(best, min(1 + entered, -(-end // block) + copy))
        count = engine.decodes
        end = min(last - 1 - int(count > 1) + count * width, cap)
        best = max(best, min(1 + min(count, -(-count * width // block)), -(-end // block)))
    if rule.copies and engine.drafts >= rule.hash_block:
        best += 1  # a padded step after a hit may copy its block and leave it at once
    return best + rule.extra


def _entered(rule: GroupRule, engine: EngineRule, steps: int, copy: int) -> int:
    """States that so many prefill steps in flight add at most."""
    each = -(-rule.block // engine.chunk)
    if rule.checkpoint and engine.chunk > rule.block:
        return steps + (min(steps, 1) if engine.sparse else steps) + copy
    crossed = -(-steps // each)
    return max(crossed, -(-(steps - 1) // each) + copy) if steps else 0
