"""Which checkpoint lies in a folder, exactly: its commit, and digests of what decides how it runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from vstate.schemas.errors import VstateError
from vstate.tracer.models.full_model import configuration_digest

CONFIG_FILE = "config.json"
COMMIT = re.compile(r"[0-9a-f]{40}")
GIT_SECONDS = 60
"""Longest time that one question to git may take; a work tree of large files can be slow to compare."""
DIGESTED = (
    "*token*.json",
    "*token*.model",
    "*token*.py",
    "vocab.*",
    "merges.txt",
    "tekken.json",
    "chat_template.*",
    "*processor_config.json",
    "generation_config.json",
    "*.index.json",
    "*.py",
)
"""Files beside the configuration that decide how a model is run: tokenizer, processor, index, and code of its own."""


class Record(BaseModel):
    """A part of what is reported."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Commit(Record):
    """The commit that a folder's files are of.

    Attributes:
        commit: 40 hexadecimal digits.
        found: ``hub cache``, from the folder's name, or ``git``, from the work tree.
        repository: Repository as the hub cache names it; empty for a git work tree.
        dirty: Whether files of the folder differ from the commit; None where that cannot be known.
    """

    commit: str
    found: Literal["hub cache", "git"]
    repository: str = ""
    dirty: bool | None = None


class FolderRevision(Record):
    """What lies in a model folder, as far as it identifies the model.

    Attributes:
        architectures: Model classes that the configuration names.
        configuration_digest: SHA-256 of the configuration as JSON with sorted keys and no spaces.
        commit: Commit of the files; None where nothing tells it.
        quantization: Method that ``quantization_config`` names; empty for none.
        files: SHA-256 of each file of `DIGESTED` by its name.
    """

    architectures: tuple[str, ...]
    configuration_digest: str
    commit: Commit | None
    quantization: str
    files: dict[str, str]


def read_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a model folder.

    Raises:
        VstateError: It is no model folder, or its configuration is damaged.
    """
    path = folder / CONFIG_FILE
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise VstateError(f"{folder} holds no {CONFIG_FILE}, so it is not a model folder") from None
    except ValueError:
        raise VstateError(f"{path} is not JSON; download the checkpoint again") from None
    if not isinstance(config, dict):
        raise VstateError(f"{path} is no configuration: it holds no fields; download the checkpoint again")
    return config


def folder_revision(folder: Path) -> FolderRevision:
    """Identify the checkpoint in a folder.

    Raises:
        VstateError: It is no model folder.
    """
    config = read_config(folder)
    return FolderRevision(
        architectures=tuple(config.get("architectures") or ()),
        configuration_digest=configuration_digest(config),
        commit=hub_commit(folder) or git_commit(folder),
        quantization=quantization(config),
        files=file_digests(folder),
    )


def quantization(config: dict[str, Any]) -> str:
    """Name the quantization of a configuration; empty for none."""
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        if found := part.get("quantization_config"):
            return str(found.get("quant_method") or "unnamed") if isinstance(found, dict) else str(found)
    return ""


def file_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file that decides how the model is run, by name, in order."""
    names = {path.name for pattern in DIGESTED for path in folder.glob(pattern) if path.is_file()}
    digests = {}
    for name in sorted(names):
        with (folder / name).open("rb") as file:
            digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def hub_commit(folder: Path) -> Commit | None:
    """Return the commit that a hub cache's folder is named by: ``models--ORG--NAME/snapshots/COMMIT``."""
    for path in (folder.absolute(), folder.resolve()):
        parts = path.parts
        for number in range(1, len(parts)):
            if parts[number - 1] == "snapshots" and COMMIT.fullmatch(parts[number]):
                kind, _, name = parts[number - 2].partition("--")
                repository = name.replace("--", "/") if kind == "models" else ""
                return Commit(commit=parts[number], found="hub cache", repository=repository)
    return None


def git_commit(folder: Path) -> Commit | None:
    """Return the commit of the git work tree in which the folder's configuration is tracked."""
    # A folder can lie in the work tree of something else, which ignores it: that commit is not the model's.
    if _git(folder, "ls-files", "--error-unmatch", CONFIG_FILE) is None:
        return None
    head = _git(folder, "rev-parse", "--verify", "HEAD")
    if head is None or not COMMIT.fullmatch(head.strip()):
        return None
    changed = _git(folder, "status", "--porcelain", "--", ".")
    return Commit(commit=head.strip(), found="git", dirty=None if changed is None else bool(changed.strip()))


def _git(folder: Path, *question: str) -> str | None:
    """Return git's answer; None where there is no git, no work tree, or no answer in time."""
    # A downloaded work tree brings settings of its own; a file monitor among them would be a program to run.
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *question]
    # Questions leave the work tree alone: without this, `status` rewrites the index.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=GIT_SECONDS, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
