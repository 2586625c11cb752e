"""Fixtures of the graph pass tests: build a function, count its operators, run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax


def build_module(body: Callable[..., Any], **inputs: tuple[tuple[int, ...], str]) -> tvm.IRModule:
    """A module whose `main` computes `body(builder, *inputs)`."""
    builder = relax.BlockBuilder()
    variables = [
        relax.Var(name, relax.TensorType(shape, dtype)) for name, (shape, dtype) in inputs.items()
    ]
    with builder.function("main", params=variables):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(body(builder, *variables)))
        builder.emit_func_output(result)
    return builder.get()


def count_operators(mod: tvm.IRModule) -> Counter[str]:
    """Calls in `main` by operator name, without "relax."."""
    counts: Counter[str] = Counter()

    def visit(expr: Any) -> None:
        if isinstance(expr, tvm.ir.Call) and isinstance(expr.op, tvm.ir.Op):
            counts[expr.op.name.removeprefix("relax.")] += 1

    relax.analysis.post_order_visit(mod["main"], visit)
    return counts


def run_module(mod: tvm.IRModule, *inputs: np.ndarray) -> np.ndarray:
    """Result of `main`, compiled by TVM's own pipeline."""
    executable = tvm.compile(mod, target=tvm.target.Target({"kind": "llvm"}))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, inputs)).numpy()


@pytest.fixture(scope="session")
def build() -> Callable[..., tvm.IRModule]:
    """`build_module`."""
    return build_module


@pytest.fixture(scope="session")
def operators() -> Callable[[tvm.IRModule], Counter[str]]:
    """`count_operators`."""
    return count_operators


@pytest.fixture(scope="session")
def run() -> Callable[..., np.ndarray]:
    """`run_module`."""
    return run_module


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers that are the same in every run."""
    return np.random.default_rng(0)
