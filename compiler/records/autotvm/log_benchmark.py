"""Compare a logged config on this machine with the build without the log.

Both are measured once, as libraries of the tuned operator; see `records.ab_benchmark`.
"""

from __future__ import annotations

import json
from typing import Any

from schedules.config import ConfigEntity

from .. import ab_benchmark
from ..ab_benchmark import Outcome, content_digest
from ..log_target import log_target
from ..measure_result import MeasureResult
from .record import LoggedTask, MeasureInput, encode
from .workload import digest, normalize, to_tuple

__all__ = ["Outcome", "content_digest", "kept", "measured"]


def kept(target: Any, workload: Any, config: ConfigEntity) -> Outcome | None:
    """Cached outcome for a logged config on this machine, if any."""
    return ab_benchmark.kept(_key(target, workload, config))


def measured(target: Any, workload: Any, config: ConfigEntity) -> Outcome | None:
    """Cached or new outcome; None if this machine can't run the operator."""
    key = _key(target, workload, config)
    return ab_benchmark.kept_or_measured(key, lambda: _measure_elsewhere(target, workload, config))


def _key(target: Any, workload: Any, config: ConfigEntity) -> str:
    knobs = json.dumps(config.to_entity())
    return ab_benchmark.key_of(str(log_target(target)), digest(workload).hex(), knobs)


def _measure_elsewhere(target: Any, workload: Any, config: ConfigEntity) -> Outcome | None:
    name, *args = to_tuple(normalize(workload))
    inp = MeasureInput(target, LoggedTask(name, tuple(args)), config)
    record = encode(inp, MeasureResult((1.0,), 0, 0.0, 0.0))
    request = {"target": str(log_target(target)), "record": record}
    return ab_benchmark.measure_elsewhere(request, name)
