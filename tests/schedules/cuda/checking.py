"""Schedules a function with the CUDA rules and compares its emulated kernels with the CPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.target import Target

from schedules.cuda import Checked, has_thread_bindings, rules
from tests.ptx.scheduled import Scheduled
from tests.schedules.cuda.emulation import Emulated

TARGET = Target({"kind": "cuda", "arch": "sm_90", "host": {"kind": "llvm"}})
CPU = Target({"kind": "llvm", "mcpu": "x86-64"})


def tensor(*shape: int, dtype: str = "float32", name: str = "x") -> te.Tensor:
    """A placeholder."""
    return te.placeholder(shape, dtype, name=name)


def schedule(
    func: tirx.PrimFunc, candidates: list[Checked] | None = None
) -> tuple[str, tirx.PrimFunc]:
    """The first rule that takes the function, and what it makes of it."""
    for rule in candidates or rules():
        scheduled = rule.apply(func, TARGET, False)
        if scheduled is not None:
            return rule.name, scheduled.mod["main"]
    raise AssertionError(f"no rule takes {func}")


def check(tensors: list[te.Tensor], folder: Path, *candidates: Checked) -> str:
    """Check the kernels of a TE graph (inputs, then the output); the name of the rule.

    The reference is the same function without a schedule, compiled for the CPU: a schedule must
    not change what a function computes, at whatever shape.
    """
    return check_func(te.create_prim_func(tensors), folder, *candidates)


def check_func(func: tirx.PrimFunc, folder: Path, *candidates: Checked) -> str:
    """The same for a TIR function whose last parameter is its output."""
    name, scheduled = schedule(func, list(candidates))
    assert has_thread_bindings(scheduled)
    rng = np.random.default_rng(0)
    inputs = [_values(rng, param) for param in func.params[:-1]]
    (found,) = _results(scheduled, inputs, folder)
    np.testing.assert_allclose(found, reference(func, inputs), rtol=1e-5, atol=1e-5)
    return name


def _results(scheduled: tirx.PrimFunc, inputs: list[np.ndarray], folder: Path) -> list[np.ndarray]:
    """What the kernels make of the inputs: those with instructions of PTX are interpreted."""
    if "cuda.func_call" not in scheduled.script():
        return Emulated(scheduled, TARGET, folder)(inputs)
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc for PTX")
    outcome = Scheduled(scheduled, TARGET).interpret(inputs)
    assert not outcome.problems, [str(problem) for problem in outcome.problems[:5]]
    return outcome.outputs


def reference(func: tirx.PrimFunc, inputs: list[np.ndarray]) -> np.ndarray:
    """The last parameter of a TIR function without a schedule, computed on the CPU."""
    last = func.params[-1]
    shape = tuple(int(extent) for extent in last.shape)
    expected = tvm.runtime.tensor(np.zeros(shape, str(last.dtype)))
    library = tvm.compile(func.with_attr("global_symbol", "reference"), CPU)
    library["reference"](*[tvm.runtime.tensor(value) for value in inputs], expected)
    return expected.numpy()


def _values(rng: np.random.Generator, param: tvm.ir.Var) -> np.ndarray:
    shape = tuple(int(extent) for extent in param.shape)
    if "float" in str(param.dtype):
        return rng.uniform(-1, 1, shape).astype(str(param.dtype))
    return rng.integers(0, 2, shape).astype(str(param.dtype))
