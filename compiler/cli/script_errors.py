"""Errors of scripts under `baton run`: the script's own lines, without Baton's and TVM's frames."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import TracebackType

import tvm
import tvm_ffi

_HIDDEN = tuple(
    f"{folder}/"
    for folder in (
        Path(__file__).resolve().parents[1],
        Path(__file__).resolve().parents[2] / "schedules",
        *(Path(each.__file__).parent for each in (tvm, tvm_ffi)),
    )
)
_HIDDEN_NAMES = ("<frozen ", "python/tvm_ffi/", "/project/")  # runpy and C++


def print_error(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an uncaught error as Python does, with only the frames that are the user's.

    To be `sys.excepthook`. An error that has no such frame is printed whole.
    """
    shown = traceback.TracebackException(kind, error, trace)
    hidden = _strip(shown)
    if not shown.stack and not isinstance(error, SyntaxError):
        sys.__excepthook__(kind, error, trace)
        return
    lines = list(shown.format())
    if hidden:
        note = f"  ({hidden} frames inside Baton and TVM; `baton run -v` shows them)\n"
        # After the last frame of the error itself, before its message.
        lines.insert(len(lines) - len(list(shown.format_exception_only())), note)
    sys.stderr.write("".join(lines))


def _strip(shown: traceback.TracebackException) -> int:
    """Remove hidden frames and causes that have no others; return how many frames went."""
    kept = [
        frame for frame in shown.stack if not frame.filename.startswith((*_HIDDEN, *_HIDDEN_NAMES))
    ]
    hidden = len(shown.stack) - len(kept)
    shown.stack[:] = kept
    for link in ("__cause__", "__context__"):
        below = getattr(shown, link)
        if below is not None:
            _strip(below)
            if not below.stack:
                setattr(shown, link, None)
    return hidden
