"""Compare a record's schedule on this machine with the build without the log.

Both are measured once, as libraries of the kernel's operators; see `records.ab_benchmark`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from tvm.ir import IRModule, save_json
from tvm.target import Target

from ...target.config import config_of_object
from .. import ab_benchmark
from ..ab_benchmark import Outcome
from .record import AnyRecord


def kept(target: Target, workload_key: str, record: AnyRecord) -> Outcome | None:
    """Cached outcome for a record of a kernel on this machine, if any."""
    return ab_benchmark.kept(_key(target, workload_key, record))


def measured(
    target: Target, workload_key: str, record: AnyRecord, operators: Callable[[], IRModule]
) -> Outcome | None:
    """Outcome, cached or new, for a kernel's key and the module that `operators` returns.

    None if this machine can't run the kernel.
    """
    key = _key(target, workload_key, record)
    return ab_benchmark.kept_or_measured(
        key, lambda: _measure_elsewhere(target, record, operators())
    )


def _key(target: Target, workload_key: str, record: AnyRecord) -> str:
    config = json.dumps(_device_config(target), sort_keys=True)
    line = hashlib.sha256(record.to_line().encode()).hexdigest()
    return ab_benchmark.key_of("auto_scheduler", config, workload_key, line)


def _device_config(target: Target) -> dict[str, Any]:
    return {name: value for name, value in config_of_object(target).items() if name != "host"}


def _measure_elsewhere(target: Target, record: AnyRecord, operators: IRModule) -> Outcome | None:
    request = {
        "target": _device_config(target),
        "record": record.to_line(),
        "operators": str(save_json(operators)),
    }
    return ab_benchmark.measure_elsewhere(request, record.source)
