"""Builds a partitioned module and times the library; runs in a worker process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ..backends import Partitioner, registry
from ..errors import ExportError
from ..ir.rewrite import expressions_in, relax_functions
from ..relay import dialect
from .candidate import ArgInfo
from .timing import random_values

MODULES = ("compiler.relay.build_module", "compiler.runtime.graph_executor")
"""Modules that a worker imports once for all calls."""

_LEAST_RUNS = 3


@dataclass(frozen=True)
class TimedModule:
    """A module to build, with the values of its weights.

    `operators`: Relay's in the module, which a worker must register before it reads it.
    `partitioners`: those of its subgraphs that a worker does not have. `path`: where the library is
    kept from one call to the next.
    """

    module: str  # JSON
    operators: tuple[str, ...]
    params: Mapping[str, np.ndarray]
    target: str
    context: tvm.transform.PassContext
    partitioners: tuple[Partitioner, ...]
    path: str

    @property
    def user_functions(self) -> list[Any]:
        """Callbacks, whose modules a worker may be unable to import."""
        owners = [owner for each in self.partitioners for owner in (each, *each.strategies)]
        return [value for owner in owners for value in vars(owner).values() if callable(value)]


def relay_operators(mod: tvm.IRModule) -> tuple[str, ...]:
    """Names of the Relay operators that a module calls."""
    calls = (call for _, each in relax_functions(mod) for call in expressions_in(each, relax.Call))
    return tuple(sorted({dialect.relay_name(call) for call in calls} - {""}))


def time_library(
    timed: TimedModule, seconds: float
) -> tuple[list[float], list[np.ndarray]]:  # runs in a worker
    """Seconds of consecutive inferences on random inputs, and the outputs of the first one."""
    from ..relay.build_module import build
    from ..runtime import graph_executor, load_module

    for name in timed.operators:
        dialect.operator(name)
    for each in timed.partitioners:
        registry.restore({**registry.registered(), each.name: each})
    if Path(timed.path).exists():
        library = load_module(timed.path)
    else:
        with timed.context:
            library = build(tvm.ir.load_json(timed.module), timed.target, params=dict(timed.params))
        # One that runs Python functions of this process can't be kept: the next call builds again.
        with contextlib.suppress(ExportError):
            library.export_library(timed.path)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    given = library.metadata.inputs
    values = random_values([ArgInfo(each.static_shape, each.dtype) for each in given])
    executor.set_input({each.name: value for each, value in zip(given, values)})
    executor.run()
    outputs = [executor.get_output(n).numpy() for n in range(executor.get_num_outputs())]
    times: list[float] = []
    begin = now = time.perf_counter()
    while now < begin + seconds or len(times) < _LEAST_RUNS:
        executor.run()
        times.append(-(now - (now := time.perf_counter())))
    return times, outputs
