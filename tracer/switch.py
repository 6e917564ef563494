"""Switches the tracing of a running engine on and off.

A thread of its own looks at the run's control file. It does all that takes time: folders, manifests, the
end of the writer. What touches the engine is done by the engine's thread itself: the watcher puts a
one-shot in the place of `Scheduler.has_requests`, which every loop of vLLM's core asks between two steps
and nobody asks inside one. The one-shot removes itself, so that an engine that is not traced has no
wrapper of vstate on it at all.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from vstate.schemas.manifests import AnchorState
from vstate.tracer.anchors import WRAPPER_MARK
from vstate.tracer.control import AnswerFile, SwitchState, read_control
from vstate.tracer.session import EngineSession
from vstate.tracer.settings import TraceSettings
from vstate.tracer.wrapping import LOGGER, is_on_instance

POLL_SECONDS = 1.0
"""Pause between two looks at the control file."""
TURN_SECONDS = 0.05
"""Pause while the engine is about to be switched."""
JOIN_SECONDS = 40.0
"""Longest wait for the watcher at the engine's end; it may be in the middle of ending a writer."""


class Switch:
    """What decides whether one engine core is traced.

    Attributes:
        session: The trace that is being written; None while tracing is off.
    """

    def __init__(
        self,
        scheduler: Any,
        settings: TraceSettings,
        anchors: tuple[AnchorState, ...],
        wake: Callable[[], None],
    ) -> None:
        """Prepare the switch of one scheduler.

        Args:
            scheduler: vLLM's scheduler.
            settings: Where and how traces are written.
            anchors: What was found in vLLM.
            wake: Makes an idle engine go through its loop once, where it can.
        """
        self.session: EngineSession | None = None
        self._scheduler = scheduler
        self._settings = settings
        self._anchors = anchors
        self._wake = wake
        self._pid = os.getpid()
        self._wanted = settings.on
        self._prepared: EngineSession | None = None
        self._over: EngineSession | None = None
        self._armed = False
        self._failed = False
        self._told = ""
        self._folder = ""
        rank = scheduler.vllm_config.parallel_config.data_parallel_index
        self._answer = AnswerFile(settings.run, f"engine-dp{rank}-{self._pid}-{time.monotonic_ns()}")
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="vstate-switch", daemon=True)

    def start(self) -> None:
        """Trace from now on, unless the run says otherwise, and begin to watch; before the first request."""
        self._look()
        if self._wanted:
            self._prepare()
            self._turn()
        self._tell()
        self._watcher.start()
        # A core's own shutdown closes the trace (see `plugin`); this is for one that is just dropped.
        atexit.register(self.close)

    def close(self) -> None:
        """Stop watching and close the trace; further calls, and those of a forked child, do nothing."""
        if self._stop.is_set() or os.getpid() != self._pid:
            return
        atexit.unregister(self.close)
        self._stop.set()
        self._watcher.join(JOIN_SECONDS)
        for session in (self._over, self._prepared, self.session):
            if session is not None:
                session.close()
        self._answer.remove()

    # On the watcher's thread

    def _watch(self) -> None:
        while not self._stop.wait(TURN_SECONDS if self._armed else POLL_SECONDS):
            try:
                self._poll()
            except Exception as error:
                self._complain(f"switching failed ({type(error).__name__}: {error})")

    def _poll(self) -> None:
        self._look()
        if self._armed:
            return
        self._clear()
        self._failed = self._failed and self._wanted
        if self._wanted and self.session is None and not self._failed:
            self._prepare()
            if self._prepared is not None:
                self._arm()
        elif not self._wanted and self.session is not None:
            self._arm()
        self._tell()

    def _look(self) -> None:
        try:
            word = read_control(self._settings.run)
        except (OSError, ValueError) as error:
            self._complain(f"the control file is ignored: {error}")
            return
        if word is not None:
            self._wanted = word is SwitchState.ON

    def _clear(self) -> None:
        """Close what is over, and what was prepared for nothing."""
        for session in (self._over, self._prepared):
            if session is not None:
                session.close()
        self._over = self._prepared = None

    def _prepare(self) -> None:
        try:
            self._prepared = EngineSession(self._scheduler, self._settings, self._anchors)
        except Exception as error:
            self._failed = True
            self._complain(f"tracing is off, it could not start ({type(error).__name__}: {error})")

    def _tell(self) -> None:
        session, failed = self.session, self._failed
        if session is not None:
            self._folder = session.folder.name
            failed = failed or not session.recorder.writer_alive
        state = SwitchState.OFF if session is None else SwitchState.ON
        self._answer.write(SwitchState.FAILED if failed else state, self._folder)

    def _complain(self, text: str) -> None:
        """Tell something once, however often it happens in a row."""
        if text != self._told:
            LOGGER.error("vstate: %s", text)
        self._told = text

    def _arm(self) -> None:
        """Have the engine's own thread turn the switch before its next step."""
        scheduler = self._scheduler
        has_requests, foreign = scheduler.has_requests, is_on_instance(scheduler, "has_requests")

        def turn_first(*args: Any, **kwargs: Any) -> Any:
            # Somebody who has wrapped it since keeps it; then it only passes on from now on.
            if scheduler.has_requests is turn_first and foreign:
                scheduler.has_requests = has_requests
            elif scheduler.has_requests is turn_first:
                del scheduler.has_requests
            if self._armed and not self._stop.is_set():
                self._turn()
            return has_requests(*args, **kwargs)

        setattr(turn_first, WRAPPER_MARK, has_requests)
        self._armed = True
        scheduler.has_requests = turn_first
        self._wake()

    # On the engine's thread, between two steps

    def _turn(self) -> None:
        """Begin or end the trace, by what is wanted at this moment."""
        try:
            if self._wanted and self.session is None and self._prepared is not None:
                prepared, self._prepared = self._prepared, None
                self._over = prepared
                prepared.begin()
                self.session, self._over = prepared, None
            elif not self._wanted and self.session is not None:
                self._over, self.session = self.session, None
                self._over.end()
        except Exception as error:
            self._failed = self._wanted
            self._complain(f"switching tracing {'on' if self._wanted else 'off'} failed: {error}")
        finally:
            self._armed = False
