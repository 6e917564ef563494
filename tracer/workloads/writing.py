"""Writes a workload file."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from vstate.schemas.errors import VstateError
from vstate.schemas.workload import WorkloadAbort, WorkloadRequest


def write_workload(path: Path, header: Iterable[str], lines: Iterable[WorkloadRequest | WorkloadAbort]) -> int:
    """Write a workload, compressed if its name ends in ``.gz``, and return how many requests and aborts it holds.

    The file takes its name when it is whole; a fault in the middle leaves none. Equal content makes equal bytes.

    Raises:
        VstateError: The file exists, is being written by another call, or cannot be written.
    """
    if path.exists():
        raise VstateError(f"{path} exists; name another file or remove it")
    if not path.parent.is_dir():
        raise VstateError(f"cannot write {path}: there is no folder {path.parent}")
    partial = path.with_name(path.name + ".partial")
    try:
        file = partial.open("xb")
    except FileExistsError as error:
        raise VstateError(f"{partial} exists; if no other call writes it any more, remove it") from error
    except OSError as error:
        raise VstateError(f"cannot write {path}: {error}") from error
    try:
        with file:
            if path.suffix == ".gz":
                with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                    count = _write(packed, header, lines)
            else:
                count = _write(file, header, lines)
        partial.replace(path)
    except OSError as error:
        raise VstateError(f"cannot write {path}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def _write(
    file: IO[bytes] | gzip.GzipFile, header: Iterable[str], lines: Iterable[WorkloadRequest | WorkloadAbort]
) -> int:
    for text in header:
        file.write(f"# {text}\n".encode())
    count = 0
    for line in lines:
        file.write(line.model_dump_json(exclude_defaults=True).encode() + b"\n")
        count += 1
    return count
