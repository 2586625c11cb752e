"""A/B benchmark of two libraries of one operator on this machine, with cached outcomes.

Both are built and timed in turn in a child process. Outcomes are kept in
$XDG_CACHE_HOME/baton/contests.jsonl, one JSON object a line.
"""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import RecordError
from ..support import isolated_python
from ..support.cache_dir import MISSING, cache_folder
from .log_file import append_lines

logger = logging.getLogger("baton.measure")

TIMEOUT_SECONDS = 300.0
_PROGRAM = "compiler.autotvm.log_benchmark"  # reads a request from stdin, prints an outcome


@dataclass(frozen=True)
class Outcome:
    """Median seconds of one run of the operator, with the logged schedule and without the log."""

    logged_seconds: float
    own_seconds: float

    @property
    def log_wins(self) -> bool:
        return self.logged_seconds <= self.own_seconds

    def __str__(self) -> str:
        return f"{self.logged_seconds * 1e6:.1f} us, {self.own_seconds * 1e6:.1f} us without"


def key_of(*parts: str) -> str:
    """Key of an outcome: of what was measured, the CPU, and the versions of Baton and TVM."""
    import tvm

    from schedules.x86.machine.host import host_name

    from .. import __version__

    machine = [host_name(), str(__version__), str(tvm.__version__)]
    text = "\n".join([*parts, *machine])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def kept(key: str) -> Outcome | None:
    """The outcome that this machine keeps; None if it never measured it."""
    return _read_kept().get(key)


def keep(key: str, outcome: Outcome) -> None:
    """Keep an outcome for later processes."""
    file = _kept_file()
    if file is None:
        logger.warning("%s; the operator will be measured again", MISSING)
        return
    try:
        append_lines(file, [json.dumps({"key": key, **asdict(outcome)})])
    except RecordError as error:
        logger.warning("%s; the operator will be measured again", error)


def kept_or_measured(key: str, measure: Callable[[], Outcome | None]) -> Outcome | None:
    """The kept outcome, else a new one, which is kept; None where it can't be measured."""
    found = kept(key)
    if found is None:
        found = measure()
        if found is not None:
            keep(key, found)
    return found


def content_digest() -> str:
    """Changes with what `kept` may answer."""
    file = _kept_file()
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest() if file else ""
    except OSError:
        return ""


def measure_elsewhere(request: Mapping[str, Any], name: str) -> Outcome | None:
    """Send `request` to a new process, whose crash leaves the build alone; None: can't run here."""
    try:
        done = subprocess.run(
            isolated_python.isolated_module_argv(_PROGRAM),
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        logger.warning("%s: not measured in %.0f s; the log's record stays", name, TIMEOUT_SECONDS)
        return None
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        logger.warning("%s: not measured (%s); the log's record stays", name, reason[0])
        return None
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def _kept_file() -> Path | None:
    folder = cache_folder()
    return folder and folder / "contests.jsonl"


def _read_kept() -> Mapping[str, Outcome]:
    """Read the cached outcomes; damaged lines are skipped and measured again."""
    file = _kept_file()
    try:
        text = file.read_text(encoding="utf-8", errors="replace") if file else ""
    except OSError:  # no cache yet, or unreadable
        return {}
    found = {}
    for line in text.splitlines():
        try:
            row = json.loads(line)
            found[row["key"]] = Outcome(float(row["logged_seconds"]), float(row["own_seconds"]))
        except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError):
            continue
    return found
