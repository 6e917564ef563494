"""Log lines from the scheduler's thread: logging takes a lock and writes, and may wait for a disk that hangs."""

from __future__ import annotations

import logging
import threading

_LOGGER = logging.getLogger("vllm.vstate")


def tell(message: str, *values: object) -> None:
    """Log a warning on a thread of its own; lost where no thread can be started."""
    thread = threading.Thread(target=_LOGGER.warning, args=(message, *values), name="vstate-tell", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return
