"""Fingerprint of the Baton source code: guards everything on disk that Baton made."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("compiler", "schedules", "tuning_logs")


@functools.cache
def code_version() -> str:
    """Hash of all files of Baton's packages, as hexadecimal digits."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*")):
            if path.suffix in (".py", ".log", ".json"):
                digest.update(f"{path.relative_to(_ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


MODULES: dict[str, str] = {}
"""Map each TVM operator defined in Python to the module with its compute."""


def module_of(function: Any) -> str:
    """Name of the module that defines a function or an object's class."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__module__", None) or type(function).__module__)
