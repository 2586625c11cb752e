"""Which is faster on this machine: a logged config, or what a build does without the log?

Both are measured once, as libraries of the one operator that the record tuned; see
`compiler.measure.verdicts`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from schedules.config import ConfigEntity

from ..errors import RecordError
from ..measure import verdicts
from ..measure.verdicts import Verdict, content_digest
from .log_target import log_target
from .record import LoggedTask, MeasureInput, MeasureResult, decode, encode
from .workload import digest, normalize, to_tuple

__all__ = ["Verdict", "content_digest", "known", "verdict"]


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
    return verdicts.measure_elsewhere(__name__, request, name)


def _measure(target_text: str, record: str) -> Verdict:
    """Build the operator both ways and time the libraries in turn; runs in the new process."""
    import numpy as np
    import tvm

    from ..lowering.build import build
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
    return verdicts.time_in_turn([logged, own], program.inputs, str(target.kind.name))


if __name__ == "__main__":
    request = json.loads(sys.stdin.read())
    verdicts.answer(_measure(request["target"], request["record"]))
