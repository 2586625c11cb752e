"""Python's cycle collector, paused while millions of objects are made that all stay."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_depth = 0
_was_enabled = False


@contextmanager
def paused_collection() -> Iterator[None]:
    """Pause the collector, unless it is off anyway; contexts nest and may overlap in threads.

    Its passes over everything alive take half of the time of partitioning a large graph, or of
    reading a large log. What was made meanwhile counts as old afterwards, so that the next pass
    over young objects skips it.
    """
    global _depth, _was_enabled
    with _lock:
        if _depth == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0 and _was_enabled:
                if gc.get_freeze_count() == 0:  # else the program has its own frozen objects
                    gc.freeze()
                    gc.unfreeze()
                gc.enable()
