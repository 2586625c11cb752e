"""Benchmark a record's schedule against the build without the log; runs as a separate program.

It reads a request of `compiler.records.auto_scheduler.log_benchmark` and prints the outcome.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import tvm

from ..errors import RecordError
from ..lowering.build import build
from ..measure import in_turn
from ..measure.candidate import ArgInfo
from ..measure.timing import random_values
from ..records.ab_benchmark import Outcome
from ..records.auto_scheduler.dispatcher import ApplyHistoryBest
from ..records.auto_scheduler.record import parse_line
from ..target import parse


def _measure(config: dict[str, Any], line: str, operators: str) -> Outcome:
    """Build the operators both ways and time the libraries in turn."""
    target, mod = parse(config), tvm.ir.load_json(operators)
    with tvm.transform.PassContext(opt_level=3):
        own = build(mod, target)
        with ApplyHistoryBest([parse_line(line)]):
            logged = build(mod, target)
    used: Any = logged.report
    if not any(kernel.source.startswith("auto_scheduler:") for kernel in used.kernels):
        raise RecordError("no kernel takes the record")
    args = [ArgInfo(info.static_shape, info.dtype) for info in own.metadata.inputs]
    names = [info.name for info in own.metadata.inputs]
    inputs = dict(zip(names, random_values(args), strict=True))
    return in_turn.measure([logged, own], inputs, str(target.kind.name))


if __name__ == "__main__":
    request = json.loads(sys.stdin.read())
    in_turn.answer(_measure(request["target"], request["record"], request["operators"]))
