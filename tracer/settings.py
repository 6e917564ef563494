"""What the environment tells a traced process, and what it hands down to its children."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

TRACE_DIR = "VSTATE_TRACE_DIR"
"""Folder under which each start of vLLM makes a run; its presence switches tracing on."""
TRACE_RUN = "VSTATE_TRACE_RUN"
"""The run's own folder, set by the launcher or by the first process."""
TRACE_SECRET = "VSTATE_TRACE_SECRET"
"""Key of the run for hashes, in hex; handed down by environment and never written."""
TRACE_MAX_DISK = "VSTATE_TRACE_MAX_DISK"
"""Bytes each process may keep on disk; the oldest segments go first."""
TRACE_STATE = "VSTATE_TRACE"
"""``on`` (where absent) or ``off``: whether an engine is traced from its start, or once it is switched on."""
SECRET_BYTES = 16
"""Length of the run's key; SipHash takes no other."""


@dataclass(frozen=True)
class TraceSettings:
    """Where and how a process writes its trace.

    Attributes:
        run: Folder of the run.
        secret: Key of the run for hashes.
        max_disk_bytes: Bytes each process may keep; 0 for no limit.
        on: Whether an engine is traced from its start.
    """

    run: Path
    secret: bytes
    max_disk_bytes: int
    on: bool = True


def trace_settings() -> TraceSettings | None:
    """Read the environment; None where tracing is off.

    The first process of a run decides its folder and its secret and puts both into the
    environment, so that its children write to the same run. Nothing is created here.

    Raises:
        ValueError: The secret in the environment is not one, or the state is neither on nor off.
    """
    run, base = os.environ.get(TRACE_RUN), os.environ.get(TRACE_DIR)
    if not run and not base:
        return None
    if not run:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        run = str(Path(str(base)) / f"{stamp}-{secrets.token_hex(3)}")
        os.environ[TRACE_RUN] = run
    secret = bytes.fromhex(os.environ.setdefault(TRACE_SECRET, secrets.token_hex(SECRET_BYTES)))
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"{TRACE_SECRET} must be {2 * SECRET_BYTES} hex digits")
    state = os.environ.get(TRACE_STATE, "on")
    if state not in ("on", "off"):
        raise ValueError(f"{TRACE_STATE} must be on or off, it is {state!r}")
    try:
        max_disk = int(os.environ.get(TRACE_MAX_DISK, "0"))
    except ValueError:
        max_disk = 0
    return TraceSettings(Path(run), secret, max_disk, on=state == "on")


def child_environment(run: Path, max_disk_bytes: int = 0) -> dict[str, str]:
    """Return what a launcher puts into the environment of the run it starts."""
    values = {TRACE_RUN: str(run), TRACE_SECRET: secrets.token_hex(SECRET_BYTES)}
    if max_disk_bytes:
        values[TRACE_MAX_DISK] = str(max_disk_bytes)
    return values
