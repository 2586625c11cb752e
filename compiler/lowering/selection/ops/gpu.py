"""Lower convolutions for GPUs to AutoTVM templates if a tuning record selects one.

Without a record TVM's legalization and the generic rules of the target take the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.target import Target

import schedules.cuda.templates  # noqa: F401  (registers its implementations)
from schedules import strategy
from schedules.cuda.gemm import tensor_cores

from ....ir.constants import dtype_of
from ..context import LoweringContext
from ..weight_packing import pack
from . import conv2d, conv2d_transpose


def is_gpu(target: Target) -> bool:
    return "gpu" in target.keys


def has_tensor_cores(target: Target) -> bool:
    """Whether products of float32 can be computed on tensor cores of the target."""
    return tensor_cores.multiplies(target, "float32", tf32=True)


def channels_last(
    target: Target, query: strategy.Query, tf32: bool
) -> Callable[[relax.Call], bool]:
    """Whether tensor cores support a convolution's dtype, and no record selects a template."""

    def wanted(call: relax.Call) -> bool:
        if not tensor_cores.multiplies(target, dtype_of(call.args[0]), tf32):
            return False
        workload = conv2d.describe(call)
        return workload is None or strategy.select("nn.conv2d", workload, target, query) is None

    return wanted


_DESCRIBE: dict[str, Callable[[relax.Call], Any]] = {
    "relax.nn.conv2d": conv2d.describe,
    "relax.nn.conv1d_transpose": conv2d_transpose.describe,
    "relax.nn.conv2d_transpose": conv2d_transpose.describe,
}


def lower_recorded(call: relax.Call, at: LoweringContext) -> relax.Expr | None:
    """A record's implementation of a convolution, in the call's layout; None without a record."""
    describe = _DESCRIBE.get(call.op.name)
    workload = None if describe is None else describe(call)
    if workload is None:
        return None
    operator = call.op.name.removeprefix("relax.")
    chosen = at.choose(operator, workload)
    if chosen is None:
        return None
    impl, config = chosen
    data, weight = call.args
    pack_weight = impl.pack
    if pack_weight is not None:
        weight = pack(at.builder, weight, lambda ops, w: pack_weight(workload, ops, w, config))

    call = at.call(
        "convolution",
        lambda x, w: impl.compute(workload, config, x, w),
        data,
        weight,
        operators=operator,
    )
    return at.builder.emit(call)
