"""Log lines from the scheduler's thread: logging takes a lock and writes, and may wait for a disk that hangs."""

from __future__ import annotations

import logging
import threading

_LOGGER = logging.getLogger("vllm.vstate")


def tell(message: str, *values: object) -> None:
    """Log a warning on a thread of its own; lost where no thread can be started."""
    thread = threading.Thread(target=_warn, args=(message, *values), name="vstate-tell", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return


def _warn(message: str, *values: object) -> None:
    # A function of this module, because vLLM's log shows the file that a line comes from.
    _LOGGER.warning(message, *values)
