"""Files that appear complete or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from compiler.errors import ExportError
from compiler.support.atomic_file import replacing
from compiler.support.regular_files import os_errors_as


def write_whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Let `write` fill a draft beside `path`, then put it in place.

    Raises ExportError: the folder is missing or can't be written, or the disk is full. Nothing is
    left behind, and an existing file is as it was.
    """
    with os_errors_as(ExportError, f"can't write {str(path)!r}"), replacing(path) as file:
        write(file)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8; raises as `write_whole` does."""
    write_whole(path, lambda file: file.write(text.encode()))


def write_json(path: Path, document: Any) -> None:
    """Write one JSON document; raises as `write_whole` does."""
    write_text(path, json_text(document))


def json_text(document: Any) -> str:
    """JSON that every parser reads: infinities and NaN, which it lacks, become strings."""
    return json.dumps(_finite(document), indent=2, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
