"""Which weights lie in a model folder, and whether they are all there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from vstate.candidate.revision import Record
from vstate.schemas.errors import VstateError

INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.(safetensors|bin))")
NO_WEIGHTS = ("training_args.bin", "optimizer.bin", "scheduler.bin")
"""Files of training that end as weights do."""
POINTER = b"version https://git-lfs"
"""How a file begins that git keeps in the place of a large one that was not fetched."""


class Weights(Record):
    """The weights of a folder.

    Attributes:
        files: Bytes of each file by its name.
        missing: Shards that the index, or the names of the others, tell of and that are not there.
    """

    files: dict[str, int]
    missing: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether there are weights and no shard is missing."""
        return bool(self.files) and not self.missing

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(self.files.values())


def folder_weights(folder: Path) -> Weights:
    """Find the weights of a folder; safetensors where there are some, as vLLM does.

    Raises:
        VstateError: The index is damaged.
    """
    found = [path for suffix in ("safetensors", "bin") for path in sorted(folder.glob(f"*.{suffix}"))]
    named = {path.name for path in found if path.name not in NO_WEIGHTS}
    if any(name.endswith(".safetensors") for name in named):
        named = {name for name in named if name.endswith(".safetensors")}
    files = {name: (folder / name).stat().st_size for name in sorted(named) if _is_here(folder / name)}
    expected = named | _indexed(folder) | {sibling for name in named for sibling in _siblings(name)}
    return Weights(files=files, missing=tuple(sorted(expected - files.keys())))


def _is_here(path: Path) -> bool:
    """Say whether the file holds data: neither a link to nothing nor a pointer of git's large file storage."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return not file.read(len(POINTER)) == POINTER


def _indexed(folder: Path) -> set[str]:
    """Return the shards that the first index there is tells of."""
    for name in INDEXES:
        path = folder / name
        if path.is_file():
            try:
                return set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values())
            except (ValueError, KeyError, TypeError, AttributeError):
                raise VstateError(f"{path} is no index of weights; download the checkpoint again") from None
    return set()


def _siblings(name: str) -> list[str]:
    """Return the names of all shards of the set that this one is numbered in."""
    match = SHARD.fullmatch(name)
    if match is None:
        return []
    count = match["count"]
    return [f"{match['stem']}-{number:05d}-of-{count}{match['suffix']}" for number in range(1, int(count) + 1)]
