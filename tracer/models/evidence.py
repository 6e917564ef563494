"""Where the values of a true-size configuration come from, field by field.

The records lie beside each configuration in `full/NAME.evidence.json`; the values themselves
stand in the configuration only, so that the two cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

EvidenceStatus = Literal["sourced", "derived", "assumed"]
"""Read in the source as it stands; follows from what is there; or found nowhere and assumed."""
ANY = "*"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FieldEvidence(_Record):
    """The evidence of one field of a configuration, or of several with one source.

    Attributes:
        path: Keys joined by dots. A ``*`` within a key stands for any characters but a dot, a
            last key that is ``*`` for everything below. A file beside the configuration
            comes first, as in ``preprocessor_config.json/size.*``.
        source: Key of `ModelEvidence.sources`.
        status: How far the source carries the value.
        note: What a reader of the value should know.
    """

    path: str
    source: str
    status: EvidenceStatus
    note: str = ""

    def matches(self, leaf: str) -> bool:
        """Say whether the row speaks of the field at ``leaf``."""
        head, dot, last = self.path.rpartition(".")
        below = bool(dot) and last == ANY
        pattern = re.escape(head if below else self.path).replace(re.escape(ANY), "[^.]*")
        return re.fullmatch(pattern + (r"\..+" if below else ""), leaf) is not None

    @property
    def literal_characters(self) -> int:
        """Characters that are no ``*``: of two rows that match, the one with more says more."""
        return len(self.path) - self.path.count(ANY)


class Parameters(_Record):
    """How many parameters the publisher says the checkpoint has.

    Attributes:
        published: Parameters in total.
        active: Parameters that one token uses; 0 where it is not said.
        source: Where the publisher says so.
    """

    published: int = Field(gt=0)
    active: int = Field(default=0, ge=0)
    source: str


class Deployment(_Record):
    """A deployment that the weights fit into. It is assumed: nobody's real one is known.

    Attributes:
        tensor_parallel_size: Devices that share the model.
        device: Name of such a device in `vstate.tracer.engines.step_time.DEVICES`.
        status: Always ``assumed``.
    """

    tensor_parallel_size: int = Field(gt=0)
    device: str
    status: Literal["assumed"] = "assumed"


class ModelEvidence(_Record):
    """All that is known about where a true-size model comes from.

    Attributes:
        parameters: The published size.
        deployment: The deployment that is assumed.
        sources: Sources by the keys that the rows use: what it is, and at which address or commit.
        fields: One row per field or group of fields.
        mismatches: What the model here, or vLLM's build of it, does otherwise than the checkpoint.
    """

    parameters: Parameters
    deployment: Deployment
    sources: dict[str, str]
    fields: tuple[FieldEvidence, ...]
    mismatches: tuple[str, ...] = ()

    def rows_of(self, leaf: str) -> list[FieldEvidence]:
        """Return the most specific rows for a field: one in a complete record."""
        rows = [row for row in self.fields if row.matches(leaf)]
        most = max((row.literal_characters for row in rows), default=0)
        return [row for row in rows if row.literal_characters == most]


def leaf_values(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the paths of all fields of a configuration, with their values.

    A list of plain values is one field; the entries of other lists are counted.
    """
    if isinstance(value, dict) and value:
        parts = list(value.items())
    elif isinstance(value, list) and any(isinstance(entry, dict | list) for entry in value):
        parts = [(str(number), entry) for number, entry in enumerate(value)]
    else:
        yield path, value
        return
    for key, part in parts:
        yield from leaf_values(part, f"{path}.{key}" if path else key)


def leaves(value: Any) -> Iterator[str]:
    """Yield the paths of all fields of a configuration."""
    return (path for path, _ in leaf_values(value))
