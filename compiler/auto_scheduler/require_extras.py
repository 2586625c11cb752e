"""Packages that tuning needs, beside those that Baton always has."""

from __future__ import annotations

import importlib.util

from ..errors import RecordError


def check_installed(*packages: str) -> None:
    """Raise RecordError if a package that tuning needs is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise RecordError(
            f"tuning needs {', '.join(missing)}; install them with: pip install 'baton-tvm[tune]'"
        )
