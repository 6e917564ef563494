"""The JSONL workload format: one request or action per line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter, ValidationError, model_validator

from vstate.schemas.errors import VstateError

MediaKind = Literal["image", "audio", "video"]
MEDIA_SIZES: dict[MediaKind, tuple[str, ...]] = {
    "image": ("width", "height"),
    "audio": ("seconds",),
    "video": ("width", "height", "frames"),
}
"""What says how large an item of a kind is."""


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


class MediaItem(BaseModel):
    """An image, a sound or a video made up from its name.

    Items of one kind, name, size and seed are the same content everywhere; another name is
    another content.

    Attributes:
        kind: What it is.
        name: What its content is drawn from.
        width: Pixels, of an image or a video.
        height: Pixels, of an image or a video.
        frames: Frames of a video.
        seconds: Length of a sound.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: MediaKind
    name: str
    width: int | None = Field(default=None, ge=1, le=4096)
    height: int | None = Field(default=None, ge=1, le=4096)
    frames: int | None = Field(default=None, ge=1, le=1024)
    seconds: float | None = Field(default=None, gt=0, le=600)

    @model_validator(mode="after")
    def _sized(self) -> MediaItem:
        sizes = MEDIA_SIZES[self.kind]
        given = {name for name in ("width", "height", "frames", "seconds") if getattr(self, name) is not None}
        if given != set(sizes):
            raise ValueError(f"the size of media of kind {self.kind} is {' and '.join(sizes)}")
        return self


class MediaSegment(BaseModel):
    """A media item inside a prompt; the model decides how many tokens it takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    media: MediaItem


def _kind_of_segment(segment: object) -> str:
    held = "media" in segment if isinstance(segment, dict) else isinstance(segment, MediaSegment)
    return "media" if held else "text"


PromptSegment = Annotated[
    Annotated[Segment, Tag("text")] | Annotated[MediaSegment, Tag("media")], Discriminator(_kind_of_segment)
]


class WorkloadRequest(BaseModel):
    """One request.

    Attributes:
        id: External request id, unique in the workload.
        when: Its arrival.
        prompt: Segments of text and media; a later request that begins with the same segments shares them.
        output: Output tokens; the request runs to exactly that length.
        priority: Lower runs first under the priority policy.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["request"] = "request"
    id: str
    when: Trigger
    prompt: tuple[PromptSegment, ...] = Field(min_length=1)
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
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            message = first["msg"].removeprefix("Value error, ")
            raise VstateError(f"{path}:{number}: not a workload line: {where}: {message}") from error
        except ValueError as error:
            raise VstateError(f"{path}:{number}: not a workload line: {error}") from error
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
