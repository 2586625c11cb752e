"""Fused TIR functions as the build driver hands them to the rules, and how to run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.target import Target

from compiler.lowering.kernel_passes import pipeline as tir_pipeline
from schedules.x86.machine.host import host_name

HOST = Target({"kind": "llvm", "mcpu": host_name()})
V3 = Target({"kind": "llvm", "mcpu": "x86-64-v3"})
BASELINE = Target({"kind": "llvm", "mcpu": "x86-64"})


def kernels(
    emit: Callable[..., Any], *shapes: Sequence[int], dtypes: Sequence[str] | None = None
) -> list[tirx.PrimFunc]:
    """The functions that legalization and fusion make of one Relax expression."""
    builder = relax.BlockBuilder()
    dtypes = dtypes or ["float32"] * len(shapes)
    args = [
        relax.Var(f"arg{number}", relax.TensorType(shape, dtype))
        for number, (shape, dtype) in enumerate(zip(shapes, dtypes))
    ]
    with builder.function("main", args):
        with builder.dataflow():
            out = builder.emit_output(emit(*args))
        builder.emit_func_output(out)
    passes = tvm.transform.Sequential(
        [
            relax.transform.DecomposeOpsForInference(),
            relax.transform.LegalizeOps(),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FoldConstant(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
            relax.transform.DeadCodeElimination(),
        ]
    )
    with HOST:
        module = passes(builder.get())
    return [func for func in module.functions.values() if isinstance(func, tirx.PrimFunc)]


def kernel(
    emit: Callable[..., Any], *shapes: Sequence[int], dtypes: Sequence[str] | None = None
) -> tirx.PrimFunc:
    """The one function that legalization and fusion make of a Relax expression."""
    (func,) = kernels(emit, *shapes, dtypes=dtypes)
    return func


def compiled(func: tirx.PrimFunc, target: Target) -> Any:
    """A library with the function as "main", made by the passes that builds use."""
    func = func.with_attr("global_symbol", "main")
    return tvm.compile(func, target=target, tir_pipeline=tir_pipeline.PIPELINE)


def run(func: tirx.PrimFunc, target: Target, *inputs: np.ndarray) -> np.ndarray:
    """Output of a function whose last parameter is its one output."""
    output = func.params[-1]
    out = np.full([int(d) for d in output.shape], -7).astype(str(output.dtype))
    arrays = [tvm.runtime.tensor(array) for array in (*inputs, out)]
    compiled(func, target)["main"](*arrays)
    return arrays[-1].numpy()


def loop_kinds(func: tirx.PrimFunc) -> set[str]:
    """Names of the kinds of loops in a function: "PARALLEL", "VECTORIZED", ..."""
    kinds: set[str] = set()
    tvm_ffi.structural_walk(
        func.body, (tirx.For, lambda loop: kinds.add(tirx.ForKind(loop.kind).name))
    )
    return kinds
