"""Distinguish errors that TVM or Baton raised in a build step from those of the caller's functions.

Backends, passes and operators that callers registered run inside build steps. Their exceptions must
reach the caller unchanged; exceptions of TVM's checks become build errors.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import tvm
import tvm_ffi

_ROOT = Path(__file__).resolve().parents[2]
_OWN = tuple(
    f"{folder}{os.sep}"
    for folder in (
        _ROOT / "compiler",
        _ROOT / "schedules",
        Path(tvm.__file__).resolve().parent,
        Path(tvm_ffi.__file__).resolve().parent,
    )
)
_STANDARD = os.path.dirname(os.__file__) + os.sep
_OF_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def is_of_a_caller(error: BaseException) -> bool:
    """Whether a function of the caller raised an error, rather than TVM or Baton."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        name = frame.f_code.co_filename
        if name.startswith(_OWN) or name == "<unknown>":
            return False
        if name.startswith("<"):  # an interactive session, or code from a string
            return True
        # TVM's C++ and Cython frames name files that are not on this machine.
        if not os.path.isabs(name) or not os.path.exists(name):
            return False
        if not any(part in name for part in _OF_PACKAGES) and not name.startswith(_STANDARD):
            return True
    return False


def reason_of(error: BaseException) -> str:
    """The last line of an error's message, and its class."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[-1].strip()}".rstrip(": ")
