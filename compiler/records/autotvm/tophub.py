"""The tuning logs shipped with Baton: the records used below any log of the user's.

They are what the downloaded TopHub packages were to TVM: at most one file is read for a target,
and the environment variable `TOPHUB_LOCATION=NONE` switches them off. A file is named after the
CPU that its records were tuned on, as LLVM calls it in `-mcpu`, and serves targets of that CPU
alone: a tile that fills the registers of AVX-512 spills those of AVX2, and one that fits a large
second-level cache thrashes a small one.
"""

from __future__ import annotations

import functools
import importlib.resources
import os
from typing import Any

from ..log_target import LogTarget
from .history import BestRecords
from .ranking import rank_line
from .record import scan

_SUFFIX = ".log"


def shipped_records(target: LogTarget) -> BestRecords:
    """Best records of the file for a target, read at the first call; none for others."""
    name = None if switched_off() else file_for(target)
    return _read(name) if name else _NONE


def switched_off() -> bool:
    """Whether the environment says that no shipped log is to be used."""
    return os.environ.get("TOPHUB_LOCATION") == "NONE"


def file_for(target: LogTarget) -> str | None:
    """Name of the shipped log for a target, or None."""
    serves = target.kind == "llvm" and target.cpu in _shipped_cpus()
    return target.cpu + _SUFFIX if serves else None


def _folder() -> Any:
    return importlib.resources.files("tuning_logs")


@functools.cache
def _shipped_cpus() -> frozenset[str]:
    """CPUs that a log is shipped for."""
    names = [file.name for file in _folder().iterdir()]
    return frozenset(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


_NONE = BestRecords()


@functools.lru_cache(maxsize=8)
def _read(name: str) -> BestRecords:
    """The records of a shipped log; those of another CPU than the file's are passed over."""
    best = BestRecords()
    cpu = name.removesuffix(_SUFFIX)
    with (_folder() / name).open(encoding="utf-8") as lines:
        records = scan(lines, name, strict=True, parse=rank_line)
        best.add_log(name, (record for record in records if record.target.cpu == cpu))
    return best
