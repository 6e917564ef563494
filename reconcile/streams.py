"""Find the engine processes of a run and their event streams."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vstate.schemas.errors import VstateError
from vstate.schemas.manifests import (
    EVENTS_FOLDER,
    PROCESS_FILE,
    RUN_FILE,
    AnyProcessManifest,
    ProcessManifest,
    RunManifest,
    StateProcessManifest,
    read_manifest,
)
from vstate.schemas.streams import StreamFile, reading, stream_files

ENGINE_ROLE = "engine"


@dataclass(frozen=True)
class EngineFolder:
    """What one engine process left: its manifest and its streams in segment order."""

    engine: int
    path: Path
    manifest: ProcessManifest
    streams: tuple[StreamFile, ...]

    @property
    def closed(self) -> bool:
        """Whether the process told at its end what it wrote; one that was killed did not."""
        closing = self.manifest.closing
        return closing is not None and not closing.writer_error

    @property
    def lost_rows(self) -> int:
        """Rows that the process knows it dropped."""
        return self.manifest.closing.lost_rows if self.manifest.closing else 0

    @property
    def wrote_everything(self) -> bool:
        """Whether every row up to the end of the process was written."""
        closing = self.manifest.closing
        return self.closed and closing is not None and not (closing.lost_rows or closing.lost_chunks)


@dataclass(frozen=True)
class StateFolder:
    """What a worker or a front end left: its manifest and its streams."""

    path: Path
    manifest: StateProcessManifest
    streams: tuple[StreamFile, ...]

    @property
    def lost_rows(self) -> int:
        """Rows that the process knows it dropped."""
        return self.manifest.closing.lost_rows if self.manifest.closing else 0


@dataclass(frozen=True)
class RunFolder:
    """A run on disk. `engines` are numbered in the order in which they started.

    `holders` are the workers and front ends, in the order in which they started.
    """

    path: Path
    manifest: RunManifest | None
    engines: tuple[EngineFolder, ...]
    holders: tuple[StateFolder, ...] = ()

    @property
    def model(self) -> str:
        """The model as the launcher named it, else as the engine did."""
        return self.manifest.model if self.manifest else self.engines[0].manifest.settings.model

    @property
    def engine_kind(self) -> str:
        """`full` or `scheduler`; a run without `run.json` came from an engine of its own."""
        return self.manifest.engine if self.manifest else "full"


def find_run(path: Path) -> RunFolder:
    """Find the engine processes of the run at `path`.

    Raises:
        VstateError: `path` is no readable run, or holds nothing that an engine recorded.
    """
    with reading(path):
        return _find_run(path)


def _find_run(path: Path) -> RunFolder:
    if not path.exists():
        raise VstateError(f"{path} does not exist; give the folder of a recorded run")
    if not path.is_dir():
        raise VstateError(f"{path} is a file; give the folder of a recorded run")
    events = path / EVENTS_FOLDER
    if not events.is_dir():
        raise VstateError(_no_run_here(path))
    manifest = None
    if (path / RUN_FILE).exists():
        manifest = read_manifest(path / RUN_FILE, RunManifest)
    found, holders = [], []
    for folder in sorted(entry for entry in events.iterdir() if entry.is_dir()):
        head = read_manifest(folder / PROCESS_FILE, AnyProcessManifest)
        if head.role == ENGINE_ROLE:
            process = read_manifest(folder / PROCESS_FILE, ProcessManifest)
            found.append((process.clock.wall_ns, folder.name, folder, process))
        else:
            beside = read_manifest(folder / PROCESS_FILE, StateProcessManifest)
            holders.append((beside.clock.wall_ns, folder.name, StateFolder(folder, beside, stream_files(folder))))
    if not found:
        raise VstateError(f"{events} holds no engine process; nothing was recorded in this run")
    engines = tuple(
        EngineFolder(number, folder, process, stream_files(folder))
        for number, (_, _, folder, process) in enumerate(sorted(found, key=lambda entry: entry[:2]))
    )
    if not any(engine.streams for engine in engines):
        raise VstateError(f"{engines[0].path} holds no event streams; the engine recorded nothing")
    return RunFolder(path, manifest, engines, tuple(holder for *_, holder in sorted(holders, key=lambda e: e[:2])))


def _no_run_here(path: Path) -> str:
    inside = sorted(entry.name for entry in path.iterdir() if (entry / EVENTS_FOLDER).is_dir())
    if inside:
        return f"{path} holds {len(inside)} runs; name one of them, such as {path / inside[-1]}"
    if any(path.iterdir()):
        return f"{path} has no {EVENTS_FOLDER} folder; it is not a run that vstate recorded"
    return f"{path} is empty; no run was recorded there"
