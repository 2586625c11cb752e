"""Benchmark a logged config against the build without the log; runs as a separate program.

It reads a request of `compiler.records.autotvm.log_benchmark` and prints the outcome.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import tvm

from ..errors import RecordError
from ..lowering.build import build
from ..measure import in_turn
from ..records.ab_benchmark import Outcome
from ..records.autotvm.dispatcher import FallbackContext
from ..records.autotvm.record import decode
from ..target import parse
from .single_op_program import build_alone, program_of


def _measure(target_text: str, record: str) -> Outcome:
    """Build the operator both ways and time the libraries in turn."""
    target = parse(target_text)
    inp, _ = decode(record)
    program = program_of(inp.task, np.random.default_rng(0))
    logged, used = build_alone(inp, program, target)
    if not used:
        raise RecordError(f"no kernel of {inp.task.name} takes the record")
    with FallbackContext(), tvm.transform.PassContext(opt_level=3):
        own = build(program.mod, target)
    return in_turn.measure([logged, own], program.inputs, str(target.kind.name))


if __name__ == "__main__":
    request = json.loads(sys.stdin.read())
    in_turn.answer(_measure(request["target"], request["record"]))
