"""The tuning logs shipped with Baton: the records used below any log of the user's.

They are what the downloaded TopHub packages were to TVM, and like them are switched off by the
environment variable `TOPHUB_LOCATION=NONE`.
"""

from __future__ import annotations

import functools
import importlib.resources
import os

from .history import BestRecords
from .record import scan


def shipped_records() -> BestRecords:
    """Best records of every `*.log` of the package `tuning_logs`, read at the first call."""
    return BestRecords() if os.environ.get("TOPHUB_LOCATION") == "NONE" else _read_shipped()


@functools.lru_cache(maxsize=1)
def _read_shipped() -> BestRecords:
    best = BestRecords()
    logs = [
        f for f in importlib.resources.files("tuning_logs").iterdir() if f.name.endswith(".log")
    ]
    for log in sorted(logs, key=lambda f: f.name):
        with log.open(encoding="utf-8") as lines:
            best.add_log(log.name, scan(lines, log.name, strict=True))
    return best
