"""The JSONL workload format: one request or action per line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter, ValidationError, model_validator

from vstate.schemas.errors import VstateError, one_line
from vstate.schemas.text_files import text_lines

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
    """When a line takes effect: at an engine step, at a moment, or after an event of another request.

    Attributes:
        at_step: Number of turns of the engine.
        at_s: Seconds of the engine's clock since its start: wall time in an engine with a real forward,
            modelled time in the scheduler engine.
        after: Id of another request.
        event: What must have happened to that one.
        delay_s: Seconds from there on, such as the time a person thinks.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    at_step: int | None = Field(default=None, ge=0)
    at_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    after: str | None = None
    event: Literal["first_token", "finish"] = "finish"
    delay_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _one_of(self) -> Trigger:
        if sum(given is not None for given in (self.at_step, self.at_s, self.after)) != 1:
            raise ValueError("give one of at_step, at_s and after")
        if self.after is None and self.delay_s:
            raise ValueError("delay_s goes with after only")
        if self.after is None and self.event != "finish":
            raise ValueError("event goes with after only")
        return self


class Segment(BaseModel):
    """A part of a prompt. Segments of one name and seed are the same tokens everywhere."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    length: Length


class HashedBlocks(BaseModel):
    """A part of a prompt of which only the ids of its equal blocks are known, as public traces give it.

    Attributes:
        block_ranges: Runs of consecutive block ids, as (first, count).
        block_tokens: Tokens of a block; a block of one id and seed is the same tokens everywhere.
        tokens: Tokens of the part, which cuts its last block short.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    block_ranges: tuple[tuple[Annotated[int, Field(ge=0, lt=2**63)], Annotated[int, Field(ge=1)]], ...]
    block_tokens: int = Field(ge=1)
    tokens: int = Field(ge=1)

    @model_validator(mode="after")
    def _covered(self) -> HashedBlocks:
        covered = sum(count for _, count in self.block_ranges) * self.block_tokens
        if not covered - self.block_tokens < self.tokens <= covered:
            raise ValueError(f"{self.tokens} tokens do not end in the last of blocks that hold {covered}")
        return self


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
    if isinstance(segment, dict):
        return "media" if "media" in segment else "blocks" if "block_ranges" in segment else "text"
    return "media" if isinstance(segment, MediaSegment) else "blocks" if isinstance(segment, HashedBlocks) else "text"


PromptSegment = Annotated[
    Annotated[Segment, Tag("text")] | Annotated[HashedBlocks, Tag("blocks")] | Annotated[MediaSegment, Tag("media")],
    Discriminator(_kind_of_segment),
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


def text_tokens(request: WorkloadRequest, block_tokens: int) -> int:
    """Return the tokens of a prompt, without what media items take, which is the model's affair."""
    parts = [part for part in request.prompt if not isinstance(part, MediaSegment)]
    return sum(p.tokens if isinstance(p, HashedBlocks) else p.length.resolve(block_tokens) for p in parts)


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


def iter_workload(path: Path) -> Iterator[WorkloadRequest | WorkloadAbort]:
    """Read a JSONL workload line by line, also one that is compressed with gzip (``.gz``).

    Raises:
        VstateError: The file cannot be read, or a line is not of the format.
    """
    for _, line in _placed(path):
        yield line


def _placed(path: Path) -> Iterator[tuple[str, WorkloadRequest | WorkloadAbort]]:
    """Read each line with where it stands, ``file:line``."""
    for number, text in enumerate(text_lines(path, "workload"), 1):
        if text.strip() and not text.lstrip().startswith("#"):
            place = f"{path}:{number}"
            yield place, _parsed(text, place)


def _parsed(text: str, place: str) -> WorkloadRequest | WorkloadAbort:
    try:
        return parse_line(text)
    except ValidationError as error:
        raise VstateError(f"{place}: not a workload line: {one_line(error)}") from error
    except ValueError as error:
        raise VstateError(f"{place}: not a workload line: {error}") from error


def read_workload(path: Path) -> list[WorkloadRequest | WorkloadAbort]:
    """Read a JSONL workload whole.

    Raises:
        VstateError: The file is absent, empty, or a line is not of the format.
    """
    placed = list(_placed(path))
    _scan(placed, str(path))
    return [line for _, line in placed]


class WorkloadScan(NamedTuple):
    """What one pass over a workload tells.

    Attributes:
        requests: Requests in it.
        in_order_of_time: Whether each line waits for a moment that is no earlier than the one before.
        referenced: Ids of the requests that another line waits for, or that are given up.
    """

    requests: int
    in_order_of_time: bool
    referenced: frozenset[str]


def scan_workload(path: Path) -> WorkloadScan:
    """Read a workload once and check it, keeping no more of it than the ids.

    Raises:
        VstateError: As `read_workload`.
    """
    return _scan(_placed(path), str(path))


def check_workload(lines: list[WorkloadRequest | WorkloadAbort], source: str) -> list[WorkloadRequest | WorkloadAbort]:
    """Check that ids are unique and that every reference has a request behind it.

    Raises:
        VstateError: They are not, or there is no request at all.
    """
    _scan(((source, line) for line in lines), source)
    return lines


def _scan(placed: Iterable[tuple[str, WorkloadRequest | WorkloadAbort]], source: str) -> WorkloadScan:
    ids: set[str] = set()
    referenced: set[str] = set()
    unknown: dict[str, str] = {}
    moment, in_order = 0.0, True
    for place, line in placed:
        if isinstance(line, WorkloadRequest):
            if line.id in ids:
                raise VstateError(f"{place}: request id {line.id!r} stands twice; ids must be unique")
            ids.add(line.id)
            unknown.pop(line.id, None)
        for name in _references(line):
            referenced.add(name)
            if name not in ids:
                unknown.setdefault(name, f"{place}: {line.kind} {line.id!r} refers to unknown request {name!r}")
        in_order = in_order and line.when.at_s is not None and line.when.at_s >= moment
        moment = line.when.at_s or moment
    if not ids:
        raise VstateError(f"{source} holds no request")
    for message in unknown.values():
        raise VstateError(message)
    return WorkloadScan(len(ids), in_order, frozenset(referenced))


def _references(line: WorkloadRequest | WorkloadAbort) -> list[str]:
    """Ids of the requests that a line refers to."""
    found = [line.when.after, line.id if isinstance(line, WorkloadAbort) else None]
    return [name for name in found if name is not None]
