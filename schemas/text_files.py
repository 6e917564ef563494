"""Text files that are read line by line, also those that are compressed."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from vstate.schemas.errors import VstateError


def text_lines(path: Path, what: str, *, encoding: str = "utf-8", newline: str | None = None) -> Iterator[str]:
    """Read a file line by line, also one that is compressed with gzip (``.gz``).

    Args:
        path: The file.
        what: What it is, for the error.
        encoding: As `open` takes it.
        newline: As `open` takes it.

    Raises:
        VstateError: It cannot be read.
    """
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding=encoding, newline=newline) as file:
            yield from file
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise VstateError(f"cannot read {what} {path}: {error}") from error
