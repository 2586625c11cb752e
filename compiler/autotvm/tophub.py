"""The tuning logs shipped with Baton: the records used below any log of the user's.

They are what the downloaded TopHub packages were to TVM: exactly one file is read for a target,
and the environment variable `TOPHUB_LOCATION=NONE` switches them off. A file is named after the
level of x86-64 that its records were tuned for, and serves targets of that level alone: a tile
that fills the registers of AVX-512 spills those of AVX2.
"""

from __future__ import annotations

import functools
import importlib.resources
import os

from ..errors import TargetError
from .history import BestRecords
from .log_target import LogTarget
from .ranking import rank_line
from .record import scan

# Highest level first; an instruction set stands for the level that brought it.
_LEVELS = (("avx512f", "x86-64-v4"), ("avx2", "x86-64-v3"))


def shipped_records(target: LogTarget) -> BestRecords:
    """Best records of the file for a target, read at the first call; none for others."""
    name = None if switched_off() else file_for(target)
    return _read(name) if name else _NONE


def switched_off() -> bool:
    """Whether the environment says that no shipped log is to be used."""
    return os.environ.get("TOPHUB_LOCATION") == "NONE"


def file_for(target: LogTarget) -> str | None:
    """Name of the shipped log for a target, or None."""
    return _file_for(target.text) if target.kind == "llvm" and "cpu" in target.keys else None


@functools.lru_cache(maxsize=256)
def _file_for(text: str) -> str | None:
    from .. import target as targets

    try:
        features = targets.cpu_features(targets.parse(text))
    except TargetError:  # an old log's target, with attributes that no TVM knows any more
        return None
    return next((f"{level}.log" for feature, level in _LEVELS if feature in features), None)


_NONE = BestRecords()


@functools.lru_cache(maxsize=len(_LEVELS))
def _read(name: str) -> BestRecords:
    best = BestRecords()
    log = importlib.resources.files("tuning_logs") / name
    if log.is_file():
        with log.open(encoding="utf-8") as lines:
            best.add_log(name, scan(lines, name, strict=True, parse=rank_line))
    return best
