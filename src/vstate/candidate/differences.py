"""What a configuration says otherwise than the true-size models of the same architecture."""

from __future__ import annotations

import json
from typing import Any

from vstate.candidate.revision import Record
from vstate.tracer.models.evidence import EvidenceStatus, leaf_values
from vstate.tracer.models.full_model import FullModel
from vstate.tracer.models.full_models import FULL_MODELS

WRITER_FIELDS = ("transformers_version", "_name_or_path", "_commit_hash")
"""What the program that saved a configuration says of itself; no model depends on it."""


class Difference(Record):
    """A field with another value, or that only one of the two has.

    Attributes:
        path: Keys joined by dots.
        here: Value in the folder, as JSON; empty where it has no such field.
        there: Value in the true-size model, as JSON; empty where it has no such field.
        evidence: How far the true-size model's value is sourced; None where it has none.
    """

    path: str
    here: str
    there: str
    evidence: EvidenceStatus | None


class Nearest(Record):
    """The true-size model of the same architecture with the fewest differences.

    Attributes:
        model: Its name.
        equal_fields: Fields that both have with the same value.
        differences: All others, but for what the program that saved it says of itself.
        assumed_and_equal: Fields that the true-size model assumes and that the folder has with the same value.
    """

    model: str
    equal_fields: int
    differences: tuple[Difference, ...]
    assumed_and_equal: tuple[str, ...]


def nearest_model(config: dict[str, Any]) -> Nearest | None:
    """Return the nearest true-size model; None where none has this architecture."""
    names = config.get("architectures")
    found = [
        compare(config, model) for model in FULL_MODELS.values() if names and model.config["architectures"] == names
    ]
    return min(found, key=lambda nearest: len(nearest.differences), default=None)


def compare(config: dict[str, Any], model: FullModel) -> Nearest:
    """Compare a configuration with a true-size model's, field by field."""
    here, there = _fields(config), _fields(model.config)
    differing = [path for path in sorted(here | there) if here.get(path) != there.get(path)]
    equal = [path for path in here if here[path] == there.get(path)]
    return Nearest(
        model=f"full/{model.name}",
        equal_fields=len(equal),
        differences=tuple(
            Difference(
                path=path,
                here=here.get(path, ""),
                there=there.get(path, ""),
                evidence=_evidence(model, path) if path in there else None,
            )
            for path in differing
        ),
        assumed_and_equal=tuple(path for path in equal if _evidence(model, path) == "assumed"),
    )


def _evidence(model: FullModel, path: str) -> EvidenceStatus | None:
    rows = model.evidence.rows_of(path)
    return rows[0].status if rows else None


def _fields(config: dict[str, Any]) -> dict[str, str]:
    """Return the value of each field as JSON, by its path."""
    own = ((path, value) for path, value in leaf_values(config) if path.rpartition(".")[2] not in WRITER_FIELDS)
    return {path: json.dumps(value, sort_keys=True) for path, value in own}
