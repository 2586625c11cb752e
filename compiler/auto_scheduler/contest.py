"""Which is faster on this machine: a record's schedule, or what a build does without the log?

Both are measured once, as libraries of the kernel's operators alone; see
`compiler.measure.verdicts`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

from tvm.target import Target

from ..errors import RecordError
from ..measure import verdicts
from ..measure.verdicts import Verdict
from ..target.config import config_of_object
from .record import AnyRecord, parse_line
from .task import Origin


def known(target: Target, workload_key: str, record: AnyRecord) -> Verdict | None:
    """The verdict that this machine keeps for a record of a kernel, if it ever measured it."""
    return verdicts.kept(_key(target, workload_key, record))


def verdict(target: Target, workload_key: str, record: AnyRecord, origin: Origin) -> Verdict | None:
    """The kept verdict, else a new one; None where this machine can't run the kernel.

    Parameters
    ----------
    workload_key : str
        Of the kernel.
    origin : Origin
        The kernel's operators.
    """
    key = _key(target, workload_key, record)
    return verdicts.settle(key, lambda: _measure_elsewhere(target, record, origin))


def _key(target: Target, workload_key: str, record: AnyRecord) -> str:
    config = json.dumps(_device_config(target), sort_keys=True)
    line = hashlib.sha256(record.to_line().encode()).hexdigest()
    return verdicts.key_of("auto_scheduler", config, workload_key, line)


def _device_config(target: Target) -> dict[str, Any]:
    return {name: value for name, value in config_of_object(target).items() if name != "host"}


def _measure_elsewhere(target: Target, record: AnyRecord, origin: Origin) -> Verdict | None:
    import tvm

    from ..lowering.selection.untuned import alone

    operators = alone(*origin)
    request = {
        "target": _device_config(target),
        "record": record.to_line(),
        "operators": str(tvm.ir.save_json(operators)),
    }
    return verdicts.measure_elsewhere(__name__, request, record.source)


def _measure(config: dict[str, Any], line: str, operators: str) -> Verdict:
    """Build the operators both ways and time the libraries in turn; runs in the new process."""
    import tvm

    from ..lowering.build import build
    from ..measure.candidate import ArgInfo
    from ..measure.timing import random_values
    from ..target import parse
    from .dispatcher import ApplyHistoryBest

    target, mod = parse(config), tvm.ir.load_json(operators)
    with tvm.transform.PassContext(opt_level=3):
        own = build(mod, target)
        with ApplyHistoryBest([parse_line(line)]):
            logged = build(mod, target)
    used: Any = logged.report
    if not any(kernel.source.startswith("auto_scheduler:") for kernel in used.kernels):
        raise RecordError("no kernel takes the record")
    args = [ArgInfo(info.shape, info.dtype) for info in own.metadata.inputs]
    names = [info.name for info in own.metadata.inputs]
    inputs = dict(zip(names, random_values(args), strict=True))
    return verdicts.time_in_turn([logged, own], inputs, str(target.kind.name))


if __name__ == "__main__":
    request = json.loads(sys.stdin.read())
    verdicts.answer(_measure(request["target"], request["record"], request["operators"]))
