"""The folder of a run, while a launcher makes it."""

from __future__ import annotations

import shutil
from pathlib import Path

from vstate.schemas.errors import VstateError
from vstate.schemas.manifests import EVENTS_FOLDER, PRIVATE_FOLDER_MODE


def make_run_folder(out: Path) -> None:
    """Make the folder of a new run.

    Raises:
        VstateError: It exists already or cannot be made.
    """
    if out.exists():
        raise VstateError(f"{out} exists already; give another --out or remove it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.mkdir(mode=PRIVATE_FOLDER_MODE)
    except OSError as error:
        raise VstateError(f"cannot make {out}: {error.strerror}; choose another --out") from error


def remove_if_no_request(out: Path) -> bool:
    """Remove a run in which no request ever arrived; returns whether it was kept."""
    if any((out / EVENTS_FOLDER).glob("*/request-*.arrows")):
        return True
    shutil.rmtree(out, ignore_errors=True)
    return False
