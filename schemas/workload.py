"""The JSONL workload format: one request or action per line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from vstate.schemas.errors import VstateError


class Length(BaseModel):
    """A number of tokens in units of the engine's block.

    A workload that should cross block boundaries on every model must not name tokens:
    blocks are 128 tokens in one model and 2,176 in the next.

    Attributes:
        blocks: Multiples of the engine's largest block; may be a fraction.
        tokens: Tokens on top of them; may be negative.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    blocks: float = 0.0
    tokens: int = 0

    def resolve(self, block_tokens: int) -> int:
        """Return the number of tokens, at least 1."""
        return max(1, round(self.blocks * block_tokens) + self.tokens)


class Trigger(BaseModel):
    """When a line takes effect: at an engine step, or after an event of another request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    at_step: int | None = Field(default=None, ge=0)
    after: str | None = None
    event: Literal["first_token", "finish"] = "finish"

    @model_validator(mode="after")
    def _one_of(self) -> Trigger:
        if (self.at_step is None) == (self.after is None):
            raise ValueError("give either at_step or after")
        return self


class Segment(BaseModel):
    """A part of a prompt. Segments of one name and seed are the same tokens everywhere."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    length: Length


class WorkloadRequest(BaseModel):
    """One request.

    Attributes:
        id: External request id, unique in the workload.
        when: Its arrival.
        prompt: Segments; a later request that begins with the same segments shares them.
        output: Output tokens; the request runs to exactly that length.
        priority: Lower runs first under the priority policy.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["request"] = "request"
    id: str
    when: Trigger
    prompt: tuple[Segment, ...] = Field(min_length=1)
    output: Length
    priority: int = 0


class WorkloadAbort(BaseModel):
    """The client gives a request up."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["abort"]
    id: str
    when: Trigger


WorkloadLine = Annotated[WorkloadRequest | WorkloadAbort, Field(discriminator="kind")]
_LINE: TypeAdapter[WorkloadRequest | WorkloadAbort] = TypeAdapter(WorkloadLine)


def parse_line(text: str) -> WorkloadRequest | WorkloadAbort:
    """Parse one line; a line without ``kind`` is a request."""
    import json

    data = json.loads(text)
    if isinstance(data, dict):
        data.setdefault("kind", "request")
    return _LINE.validate_python(data)


def read_workload(path: Path) -> list[WorkloadRequest | WorkloadAbort]:
    """Read a JSONL workload.

    Raises:
        VstateError: The file is absent, empty, or a line is not of the format.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise VstateError(f"cannot read workload {path}: {error}") from error
    parsed: list[WorkloadRequest | WorkloadAbort] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            parsed.append(parse_line(line))
        except (ValidationError, ValueError) as error:
            first = str(error).splitlines()
            detail = first[-2].strip() if isinstance(error, ValidationError) and len(first) > 1 else first[0]
            raise VstateError(f"{path}:{number}: not a workload line: {detail}") from error
    return check_workload(parsed, str(path))


def check_workload(lines: list[WorkloadRequest | WorkloadAbort], source: str) -> list[WorkloadRequest | WorkloadAbort]:
    """Check that ids are unique and that every reference has a request behind it.

    Raises:
        VstateError: They are not, or there is no request at all.
    """
    ids = [line.id for line in lines if isinstance(line, WorkloadRequest)]
    if not ids:
        raise VstateError(f"{source} holds no request")
    known = set(ids)
    if len(known) != len(ids):
        double = next(i for i in ids if ids.count(i) > 1)
        raise VstateError(f"{source}: request id {double!r} stands twice; ids must be unique")
    for line in lines:
        for name in (line.when.after, line.id if isinstance(line, WorkloadAbort) else None):
            if name is not None and name not in known:
                raise VstateError(f"{source}: {line.kind} {line.id!r} refers to unknown request {name!r}")
    return lines
