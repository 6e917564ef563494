"""How somebody outside tells running engines to trace or not, and how those answer.

``RUN/control`` holds the word ``on`` or ``off`` for all engines of the run. Each engine keeps a file in
``RUN/switch/`` that says what it does; the file is locked for as long as its process lives.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vstate.schemas.manifests import PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE

CONTROL_FILE = "control"
SWITCH_FOLDER = "switch"
_ANSWER_BYTES = 256


class SwitchState(StrEnum):
    """What an engine does, or is told to do; `FAILED` is an engine that could not be switched on."""

    ON = "on"
    OFF = "off"
    FAILED = "failed"


@dataclass(frozen=True)
class SwitchAnswer:
    """What one live engine says of itself.

    Attributes:
        engine: Name of its file, ``engine-dp<rank>-<pid>-<start>``.
        state: What it does.
        folder: Name of the process folder it writes, or wrote last; empty before the first.
    """

    engine: str
    state: SwitchState
    folder: str


def read_control(run: Path) -> SwitchState | None:
    """Return what the engines of a run are told; None where there is no control file.

    Raises:
        ValueError: The file holds something else.
        OSError: It cannot be read.
    """
    try:
        word = (run / CONTROL_FILE).read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return None
    if word not in (SwitchState.ON, SwitchState.OFF):
        raise ValueError(f"{run / CONTROL_FILE} must hold on or off, it holds {word[:20]!r}")
    return SwitchState(word)


def write_control(run: Path, wanted: SwitchState) -> None:
    """Tell the engines of a run what to do; they look about once a second.

    Raises:
        OSError: The file cannot be written.
    """
    path = run / CONTROL_FILE
    partial = path.with_name(f".{CONTROL_FILE}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{wanted}\n")
    partial.replace(path)


class AnswerFile:
    """The file in which an engine says what it does."""

    def __init__(self, run: Path, engine: str) -> None:
        """Make and lock it.

        Raises:
            OSError: It cannot be made.
        """
        folder = run / SWITCH_FOLDER
        for parent in (run.parent, run, folder):
            parent.mkdir(mode=PRIVATE_FOLDER_MODE, parents=True, exist_ok=True)
        self._path = folder / engine
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE_MODE)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, state: SwitchState, folder: str) -> None:
        """Say what the engine does; in place, because another file would not be the locked one."""
        text = json.dumps({"state": state.value, "folder": folder}).ljust(_ANSWER_BYTES - 1) + "\n"
        os.pwrite(self._descriptor, text.encode(), 0)

    def remove(self) -> None:
        """Take it away: the engine ends."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def live_answers(run: Path) -> list[SwitchAnswer]:
    """Return what the engines of a run say that are alive, in the order of their names.

    Raises:
        OSError: A file may not be read.
    """
    found = []
    for path in sorted((run / SWITCH_FOLDER).glob("engine-*")):
        try:
            with path.open("rb") as file:
                if not _is_locked(file.fileno()):
                    continue
                answer = json.loads(file.read())
            found.append(SwitchAnswer(path.name, SwitchState(answer["state"]), answer["folder"]))
        except (FileNotFoundError, ValueError):
            continue  # it ends, or begins, at this moment
    return found


def _is_locked(descriptor: int) -> bool:
    """Whether another open file holds the lock, as that of a live engine does."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
