"""What a launcher tells an engine process, and what that process tells back."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from vstate.schemas.workload import MediaKind


class EngineJob(BaseModel):
    """One run: the engine to start and the workload to put through it.

    Attributes:
        model: Folder or id that vLLM loads.
        arguments: Arguments of vLLM's `EngineArgs`.
        workload: File of the workload, JSONL.
        requests: Requests in it.
        in_order_of_time: Whether each of its lines waits for a moment, none earlier than the one before.
        referenced: Requests that other lines refer to.
        skip_too_long: Whether requests that do not fit are left out.
        seed: Seed of prompts and weights.
        placeholders: Token ids that stand for one media item of a kind.
        text_vocabulary: Text tokens are below it; 0 for the whole vocabulary.
    """

    model: str
    arguments: dict[str, Any]
    workload: str
    requests: int
    in_order_of_time: bool = False
    referenced: tuple[str, ...] = ()
    skip_too_long: bool = False
    seed: int
    placeholders: dict[MediaKind, tuple[int, ...]] = {}
    text_vocabulary: int = 0


class EngineMessage(BaseModel):
    """One line from the engine process.

    Attributes:
        kind: ``starting`` and ``running`` are progress; ``done`` and ``failed`` are the last word.
        ended: Requests ended so far.
        requests: Requests in all.
        steps: Engine steps made, with ``done``.
        skipped: Requests left out because they do not fit, with ``done``.
        modelled_seconds: What the virtual clock shows at the end; None in an engine with a real forward.
        block_tokens: Unit of the workload's lengths, with ``running``.
        costs: `StepCosts` of one rank, with ``done`` of an engine without a forward.
        resident_bytes: Memory that the engine's process has resident, with ``running``.
        error: One line, with ``failed``.
    """

    kind: Literal["starting", "running", "done", "failed"]
    ended: int = 0
    requests: int = 0
    steps: int = 0
    skipped: int = 0
    modelled_seconds: float | None = None
    costs: dict[str, Any] = {}
    block_tokens: int = 0
    resident_bytes: int = 0
    error: str = ""
