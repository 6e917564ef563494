"""The trace of a process that holds state beside an engine core: a worker or a front end."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Sequence

from vstate import __version__
from vstate.schemas.component import StateComponent
from vstate.schemas.manifests import PROCESS_FILE, ClockAnchor, StateProcessManifest, write_manifest
from vstate.schemas.vocabulary import NOT_APPLICABLE
from vstate.tracer.memory_log import MemoryLog
from vstate.tracer.session import boot_id, make_process_folder, vllm_version
from vstate.tracer.settings import TraceSettings
from vstate.tracer.wrapping import LOGGER
from vstate.tracer.writer import Writer


class StateSession:
    """Log, writer and manifest of one worker or front end."""

    def __init__(
        self,
        settings: TraceSettings,
        role: str,
        ranks: tuple[int, int, int],
        components: Sequence[StateComponent],
    ) -> None:
        """Begin to write what ``components`` take.

        Args:
            settings: Where the trace goes.
            role: Role of the process.
            ranks: Data, pipeline and tensor parallel rank.
            components: What state lies here.

        Raises:
            OSError: The folder cannot be made.
        """
        start_ns = time.monotonic_ns()
        self._manifest = StateProcessManifest(
            vstate_version=__version__,
            vllm_version=vllm_version(),
            role=role,
            engine_id=f"{os.getpid()}-{start_ns}",
            data_parallel_rank=ranks[0],
            pipeline_parallel_rank=ranks[1],
            tensor_parallel_rank=ranks[2],
            pid=os.getpid(),
            clock=ClockAnchor(boot_id=boot_id(), monotonic_ns=start_ns, wall_ns=time.time_ns()),
            components=tuple(components),
        )
        self.folder = make_process_folder(settings.run, self._manifest, start_ns)
        self.log = MemoryLog()
        self._closed = False
        self._writer = Writer(
            self.folder,
            self.log,
            settings.secret,
            on_segment_full=self.log.want_segment,
            on_failure=self._writer_failed,
            max_disk_bytes=settings.max_disk_bytes,
        )
        write_manifest(self.folder / PROCESS_FILE, self._manifest)
        self._writer.start()
        atexit.register(self.close)

    def index(self, component: str) -> int:
        """Return the number of the component with this id, -1 where it is not here."""
        ids = [entry.id for entry in self._manifest.components]
        return ids.index(component) if component in ids else NOT_APPLICABLE

    @staticmethod
    def _writer_failed(error: str) -> None:
        LOGGER.warning("vstate: writing the memory figures failed (%s); serving goes on without them", error)

    def close(self) -> None:
        """Write what is left and the closing counts; further calls, and those of a forked child, do nothing."""
        if self._closed or os.getpid() != self._manifest.pid:
            return
        self._closed = True
        atexit.unregister(self.close)
        try:
            self._writer.close(self._finish)
        except Exception as error:  # the process is ending and must not be held up
            LOGGER.warning("vstate: the memory figures end without closing counts (%s)", error)

    def _finish(self) -> None:
        """Write the closing counts; on the writer's thread, because the disk may hang."""
        counts = self._writer.counts(lost_chunks=0, lost_rows=self.log.lost_rows)
        write_manifest(self.folder / PROCESS_FILE, self._manifest.model_copy(update={"closing": counts}))
