"""Replay of one AutoTVM record on its own operator."""

from __future__ import annotations

import numpy as np
import tvm

from compiler.autotvm.single_op_program import build_alone, program_of
from compiler.runtime import graph_executor


def relative_error(inp, target):
    """Build the operator of a record, require that a kernel uses the record, and run it."""
    program = program_of(inp.task, np.random.default_rng(0))
    library, used = build_alone(inp, program, target)
    assert used, "no kernel took the record"
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(**program.inputs)
    error = np.abs(module.get_output(0).numpy() - program.expected).max()
    return float(error / np.abs(program.expected).max())
