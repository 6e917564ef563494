"""Adds what drafts keep: models of their own and heads on a target. Native drafts are their family's."""

from __future__ import annotations

from vstate.inventory.adapters.plan import ModelPlan
from vstate.inventory.adapters.registry import Context
from vstate.schemas.errors import VstateError


def with_draft(plan: ModelPlan, architecture: str, context: Context) -> ModelPlan:
    """Return the plan with the draft that the settings ask for.

    Raises:
        VstateError: The model has no such draft, or nothing is known of it.
    """
    drafting = context.settings.drafting
    if drafting is None or drafting.method == "ngram":
        return plan
    if drafting.method == "mtp":
        if not plan.draft_modules:
            raise VstateError(f"{architecture} has no native draft; draft by another method than mtp, or not at all")
        return plan
    raise VstateError(f"drafts by {drafting.method} are not known; register an adapter")
