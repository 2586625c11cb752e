"""Which is faster on this machine: a record's schedule, or what a build does without the log?

Both are measured once, as libraries of the kernel's operators alone; see
`compiler.records.verdicts`. `compiler.auto_scheduler.contest` measures them, in a process of its
own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from tvm.ir import IRModule, save_json
from tvm.target import Target

from ...target.config import config_of_object
from .. import verdicts
from ..verdicts import Verdict
from .record import AnyRecord

_MEASURES = "compiler.auto_scheduler.contest"  # runs in a process of its own


def known(target: Target, workload_key: str, record: AnyRecord) -> Verdict | None:
    """The verdict that this machine keeps for a record of a kernel, if it ever measured it."""
    return verdicts.kept(_key(target, workload_key, record))


def verdict(
    target: Target, workload_key: str, record: AnyRecord, operators: Callable[[], IRModule]
) -> Verdict | None:
    """The kept verdict, else a new one; None where this machine can't run the kernel.

    Parameters
    ----------
    workload_key : str
        Of the kernel.
    operators : callable
        Gives a module whose main has the kernel's operators alone.
    """
    key = _key(target, workload_key, record)
    return verdicts.settle(key, lambda: _measure_elsewhere(target, record, operators()))


def _key(target: Target, workload_key: str, record: AnyRecord) -> str:
    config = json.dumps(_device_config(target), sort_keys=True)
    line = hashlib.sha256(record.to_line().encode()).hexdigest()
    return verdicts.key_of("auto_scheduler", config, workload_key, line)


def _device_config(target: Target) -> dict[str, Any]:
    return {name: value for name, value in config_of_object(target).items() if name != "host"}


def _measure_elsewhere(target: Target, record: AnyRecord, operators: IRModule) -> Verdict | None:
    request = {
        "target": _device_config(target),
        "record": record.to_line(),
        "operators": str(save_json(operators)),
    }
    return verdicts.measure_elsewhere(_MEASURES, request, record.source)
