"""Builds a product of the schedule library with an epilogue and compares it with numpy."""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import te, tirx

from schedules import rules, strategy
from schedules.config import ConfigEntity
from schedules.matmul import DenseWorkload
from schedules.x86.machine.host import host_name

from .kernels import compiled

HOST = tvm.target.Target({"kind": "llvm", "mcpu": host_name(), "num-cores": 2})
TARGETS = [HOST] + [
    tvm.target.Target({"kind": "llvm", "mcpu": mcpu, "num-cores": 2})
    for mcpu in ("x86-64-v3", "x86-64")
]


def implementation(w, name, target=HOST):
    operator = "nn.dense" if isinstance(w, DenseWorkload) else "nn.batch_matmul"
    found = [impl for impl in strategy.registered(operator, target) if impl.name == name]
    return next((impl for impl in found if impl.supports(w, target)), found[0])


def relative_error(
    w, name: str, target=HOST, config: ConfigEntity | None = None, prologue: bool = False
) -> float:
    """Largest error over the reference's largest magnitude.

    With a prologue, each operand that is not a packed weight is x / 2 + 1 of what is passed in.

    The epilogue is tanh(x + bias)^2 * x + residual: broadcast, full-size operands, a costly
    function whose value is used twice and a cheap one that is used twice.
    """
    impl = implementation(w, name, target)
    config = config or impl.fallback(w, target)
    rng = np.random.default_rng(0)
    if isinstance(w, DenseWorkload):
        x = rng.standard_normal((*w.lead, w.k))
        matrix = rng.standard_normal((w.k, w.n))
        expected, shape = x @ matrix, (*w.lead, w.n)
        if w.weight is None:
            assert impl.pack is not None
            second = impl.pack(np, matrix, config)
        else:
            second = matrix.transpose(np.argsort(w.weight.axes))
    else:
        x, second = (rng.standard_normal(operand.stored) for operand in (w.lhs, w.rhs))
        expected = x.transpose(w.lhs.axes) @ second.transpose(w.rhs.axes)
        shape = (*w.batch, w.m, w.n)
    bias, residual = rng.standard_normal(w.n), rng.standard_normal(shape)
    shifted = expected / math.sqrt(w.k) + bias
    expected = np.tanh(shifted) ** 2 * shifted + residual
    if prologue:
        x = (x - 1) * 2
        second = second if impl.pack else (second - 1) * 2
    arrays = [np.ascontiguousarray(array, w.dtype) for array in (x, second, bias, residual)]
    tensors = [te.placeholder(array.shape, w.dtype) for array in arrays]
    operands = tensors[:2]
    if prologue:
        operands = [_prologue(tensors[0]), tensors[1] if impl.pack else _prologue(tensors[1])]
    scale = tirx.const(1 / math.sqrt(w.k), w.dtype)
    out = _epilogue(impl.compute(w, config, *operands), tensors[2], tensors[3], scale)
    scheduled = rules.schedule(te.create_prim_func([*tensors, out]), target)
    assert scheduled is not None and scheduled.rule == name
    library = compiled(scheduled.func, target)
    result = tvm.runtime.tensor(np.full(shape, np.nan, w.dtype))
    library["main"](*map(tvm.runtime.tensor, arrays), result)
    return float(np.abs(result.numpy() - expected).max() / np.abs(expected).max())


def _prologue(x):
    half = te.compute(x.shape, lambda *i: x[i] * tirx.const(0.5, x.dtype), name="half")
    return te.compute(x.shape, lambda *i: half[i] + tirx.const(1.0, x.dtype), name="plus_one")


def _epilogue(product, bias, residual, scale):
    shape = product.shape
    shifted = te.compute(shape, lambda *i: product[i] * scale + bias[i[-1]], name="shifted")
    tanh = te.compute(shape, lambda *i: te.tanh(shifted[i]), name="tanh")
    gated = te.compute(shape, lambda *i: tanh[i] * tanh[i] * shifted[i], name="gated")
    return te.compute(shape, lambda *i: gated[i] + residual[i], name="residual_add")
