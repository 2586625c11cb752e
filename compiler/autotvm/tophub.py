"""`autotvm.tophub` of old scripts, which applies tuning logs; Baton ships none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..errors import RecordError
from ..records.autotvm.dispatcher import ApplyHistoryBest, DispatchContext, FallbackContext


def context(
    target: Any,
    extra_files: Sequence[str | os.PathLike] | None = None,
    allow_fallback: bool = False,
) -> DispatchContext:
    """Make a context of the records in `extra_files`.

    `target`: has no effect: each record names its target. `extra_files`: tuning logs.
    `allow_fallback`: has no effect: an operator without a record takes its schedule's own choice.
    Raises RecordError: a file can't be read, or has no record.
    """
    del target, allow_fallback
    if isinstance(extra_files, (str, os.PathLike)):
        raise RecordError(f"extra_files={extra_files!r}: give a list of files")
    return ApplyHistoryBest(list(extra_files)) if extra_files else FallbackContext()
