"""`baton cache`: what the kernel cache holds, and how to empty it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from compiler.errors import ExportError
from compiler.lowering.cache.kernel_cache import LIMIT_VARIABLE, Usage, user_cache
from compiler.support.cache_dir import MISSING
from compiler.support.regular_files import os_errors_as

from .console import show


def cache_usage() -> Usage:
    """Contents of this user's kernel cache. Raises ExportError: the folder can't be read."""
    cache = user_cache()
    with os_errors_as(ExportError, f"can't read {cache.folder}"):
        return cache.usage()


def clear_cache() -> Usage:
    """Empty this user's kernel cache; returns what it held.

    Raises ExportError: a file can't be removed.
    """
    cache = user_cache()
    with os_errors_as(ExportError, f"can't empty {cache.folder}"):
        return cache.clear()


def usage_json(usage: Usage) -> dict[str, Any]:
    """Plain strings and numbers."""
    return {**asdict(usage), "folder": usage.folder and str(usage.folder)}


def show_usage(usage: Usage) -> None:
    """Print the folder, what it holds, and the limit."""
    limit = f"at most {usage.limit / 1e6:.0f} MB" if usage.limit else "off"
    if usage.folder is None:
        show(f"the cache is off: {MISSING}")
        return
    show(
        f"{usage.folder}: {_content(usage)} "
        f"({limit}; {LIMIT_VARIABLE} sets the limit in bytes, 0 turns the cache off)"
    )


def show_cleared(usage: Usage) -> None:
    """Print what was removed from the cache."""
    show(f"{usage.folder or 'the cache'}: dropped {_content(usage)}")


def _content(usage: Usage) -> str:
    return f"{usage.kernels} kernels, {usage.libraries} libraries, {usage.bytes / 1e6:.1f} MB"
