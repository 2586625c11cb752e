"""Which is faster on this machine: a logged config, or what a build does without the log?

Both are measured once, in a process of their own, as libraries of the one operator that the
record tuned. Verdicts are kept in $XDG_CACHE_HOME/baton/contests.jsonl, one JSON object a line.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from schedules.config import ConfigEntity

from ..errors import RecordError
from ..measure.log_file import append_lines
from .log_target import log_target
from .record import LoggedTask, MeasureInput, MeasureResult, decode, encode
from .workload import digest, normalize, to_tuple

logger = logging.getLogger("baton.autotvm")

ROUNDS = 15  # each times both libraries once
TIMEOUT_SECONDS = 300.0
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Verdict:
    """Median seconds of one run of the operator, with the logged config and without the log."""

    logged_seconds: float
    own_seconds: float

    @property
    def log_wins(self) -> bool:
        return self.logged_seconds <= self.own_seconds

    def __str__(self) -> str:
        return f"{self.logged_seconds * 1e6:.1f} us, {self.own_seconds * 1e6:.1f} us without"


def known(target: Any, workload: Any, config: ConfigEntity) -> Verdict | None:
    """The verdict that this machine keeps for a logged config; None if it never measured it."""
    if not _kept_file().exists():
        return None
    return _read_kept().get(_key(target, workload, config))


def verdict(target: Any, workload: Any, config: ConfigEntity) -> Verdict | None:
    """The kept verdict, else a new one; None where this machine can't run the operator."""
    found = known(target, workload, config)
    if found is None:
        found = _measure_elsewhere(target, workload, config)
        if found is not None:
            row = {"key": _key(target, workload, config), **asdict(found)}
            try:
                append_lines(_kept_file(), [json.dumps(row)])
            except RecordError as error:
                logger.warning("%s; the operator will be measured again", error)
    return found


def _kept_file() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "baton" / "contests.jsonl"


def _read_kept() -> Mapping[str, Verdict]:
    """Every readable line; what is damaged is measured again."""
    kept = {}
    with open(_kept_file(), encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                row = json.loads(line)
                kept[row["key"]] = Verdict(float(row["logged_seconds"]), float(row["own_seconds"]))
            except (ValueError, KeyError, TypeError):
                continue
    return kept


def _key(target: Any, workload: Any, config: ConfigEntity) -> str:
    """Of target, workload, knobs, the CPU, and the versions of Baton's and TVM's code."""
    import tvm
    from tvm.target import codegen

    from .. import __version__

    parts = [
        str(log_target(target)),
        digest(workload).hex(),
        json.dumps(config.to_entity()),
        str(codegen.llvm_get_system_cpu()),
        str(__version__),
        str(tvm.__version__),
    ]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def _measure_elsewhere(target: Any, workload: Any, config: ConfigEntity) -> Verdict | None:
    """Measure in a new process: its crash is no crash of the build."""
    name, *args = to_tuple(normalize(workload))
    inp = MeasureInput(target, LoggedTask(name, tuple(args)), config)
    record = encode(inp, MeasureResult((1.0,), 0, 0.0, 0.0))
    path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps({"target": str(log_target(target)), "record": record}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            env={**os.environ, "PYTHONPATH": path, "TOPHUB_LOCATION": "NONE"},
        )
    except subprocess.TimeoutExpired:
        logger.warning("%s: not measured in %.0f s; the log's config stays", name, TIMEOUT_SECONDS)
        return None
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        logger.warning("%s: not measured (%s); the log's config stays", name, reason[0])
        return None
    return Verdict(**json.loads(done.stdout.splitlines()[-1]))


def _measure(target_text: str, record: str) -> Verdict:
    """Build the operator both ways and time the libraries in turn; runs in the new process."""
    import numpy as np
    import tvm

    from ..lowering.build import build
    from ..runtime import graph_executor
    from ..target import parse
    from .dispatcher import FallbackContext
    from .rebuild import build_alone, program_of

    target = parse(target_text)
    inp, _ = decode(record)
    program = program_of(inp.task, np.random.default_rng(0))
    logged, used = build_alone(inp, program, target)
    if not used:
        raise RecordError(f"no kernel of {inp.task.name} takes the record")
    with FallbackContext(), tvm.transform.PassContext(opt_level=3):
        own = build(program.mod, target)
    device = tvm.device("cuda" if target.kind.name == "cuda" else "cpu")
    if not device.exist:
        raise RecordError("this machine has no device to run it")
    modules, seconds = [], [[], []]  # type: ignore[var-annotated]
    for library in (logged, own):
        module = graph_executor.GraphModule(library["default"](device))
        module.set_input(program.inputs)
        module.run()
        modules.append(module)
    for _ in range(ROUNDS):
        for module, taken in zip(modules, seconds, strict=True):
            timed = module.benchmark(device, repeat=3, number=1, min_repeat_ms=2)
            taken.append(statistics.median(timed.results))
    return Verdict(*(statistics.median(taken) for taken in seconds))


if __name__ == "__main__":
    request = json.loads(sys.stdin.read())
    print(json.dumps(asdict(_measure(request["target"], request["record"]))))
