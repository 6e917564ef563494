"""What `vstate reconcile --json` prints and `summary.json` holds."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from vstate.schemas.vocabulary import SCHEMA_VERSION, Evidence, Owner, StateClass

Verdict = Literal["clean", "findings", "incomplete"]
Severity = Literal["info", "undercount", "illegal"]


class EstimateSummary(BaseModel):
    """How one estimate did against what the engine's requests held, per group.

    A request counts once per admission. ``unknown_requests`` were alive while events
    were lost and are judged neither way.
    """

    source: str
    scope: str
    pool: int
    group: int
    requests: int
    unknown_requests: int
    undercount_requests: int
    overcount_requests: int
    undercount_blocks: int
    overcount_blocks: int
    estimated_blocks: int
    observed_peak_blocks: int


class ComponentSummary(BaseModel):
    """Useful and charged bytes of one component.

    ``useful_bytes`` and ``charged_bytes`` are summed over requests at the moment each
    released its blocks, from the engine's books; 0 outside the pools. ``planned_bytes`` is the component's
    part of the pool, or what is planned for it outside. ``observed_bytes`` are those of real tensors, null
    where none were measured; what grows while serving counts at its peak. ``evidence`` is ``measured``
    where they are there. ``group`` is -1 outside the pools.
    """

    component: str
    state_class: StateClass
    owner: Owner
    group: int
    evidence: Evidence
    useful_bytes: int
    charged_bytes: int
    planned_bytes: int
    observed_bytes: int | None


class Finding(BaseModel):
    """One rule that the run breaks."""

    rule: str
    title: str
    severity: Severity
    evidence: str
    count: int
    sentence: str
    action: str


class Summary(BaseModel):
    """The result of reconciling one run."""

    schema_version: int = SCHEMA_VERSION
    model: str
    engine: str
    steps: int
    requests: int
    events: int
    dropped: int
    gaps: list[str]
    verdict: Verdict
    outcome: dict[str, int]
    estimates: list[EstimateSummary]
    components: list[ComponentSummary]
    findings: list[Finding]
