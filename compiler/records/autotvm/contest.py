"""Which is faster on this machine: a logged config, or what a build does without the log?

Both are measured once, as libraries of the one operator that the record tuned; see
`compiler.records.verdicts`. `compiler.autotvm.contest` measures them, in a process of its own.
"""

from __future__ import annotations

import json
from typing import Any

from schedules.config import ConfigEntity

from .. import verdicts
from ..log_target import log_target
from ..verdicts import Verdict, content_digest
from .record import LoggedTask, MeasureInput, MeasureResult, encode
from .workload import digest, normalize, to_tuple

__all__ = ["Verdict", "content_digest", "known", "verdict"]

_MEASURES = "compiler.autotvm.contest"  # runs in a process of its own


def known(target: Any, workload: Any, config: ConfigEntity) -> Verdict | None:
    """The verdict that this machine keeps for a logged config; None if it never measured it."""
    return verdicts.kept(_key(target, workload, config))


def verdict(target: Any, workload: Any, config: ConfigEntity) -> Verdict | None:
    """The kept verdict, else a new one; None where this machine can't run the operator."""
    key = _key(target, workload, config)
    return verdicts.settle(key, lambda: _measure_elsewhere(target, workload, config))


def _key(target: Any, workload: Any, config: ConfigEntity) -> str:
    knobs = json.dumps(config.to_entity())
    return verdicts.key_of(str(log_target(target)), digest(workload).hex(), knobs)


def _measure_elsewhere(target: Any, workload: Any, config: ConfigEntity) -> Verdict | None:
    name, *args = to_tuple(normalize(workload))
    inp = MeasureInput(target, LoggedTask(name, tuple(args)), config)
    record = encode(inp, MeasureResult((1.0,), 0, 0.0, 0.0))
    request = {"target": str(log_target(target)), "record": record}
    return verdicts.measure_elsewhere(_MEASURES, request, name)
