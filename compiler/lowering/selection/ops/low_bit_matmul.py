"""Lower matmuls with low-bit weights to an implementation of the schedule library."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax, te

import schedules.x86  # noqa: F401  (registers its implementations)
from schedules.matmul import BitsWorkload
from schedules.x86.matmul.low_bit_matmul import MOST_ROWS

from ....ir.constants import array_of, constant, static_shape
from ....ir.op_dialect import RELAX
from ...graph_passes.fp32_accumulation import HALVES
from ..context import LoweringContext
from ..weight_packing import pack
from .matmul import lower_matmul

NAME = "relay.nn.matmul_of_bits"


def lower_matmul_of_bits(call: relax.Call, at: LoweringContext) -> relax.Expr | None:
    """The call of the chosen kernel of `relay.nn.matmul_of_bits`, not yet emitted.

    If the library has no kernel for that many rows, constant weights are widened at build time;
    None if they are not constant. With a dynamic number of rows, a few are computed at a time.
    float16 is computed in float32.
    """
    data, *weights = call.args
    arrays, shape = [array_of(weight) for weight in weights], static_shape(data)
    packed, scales, zeros = arrays
    if packed is None or scales is None or zeros is None:
        return None
    dtype, bits = str(data.ty.dtype), int(call.attrs["bits"])
    if dtype in HALVES:
        data = at.builder.emit(relax.op.astype(data, "float32"))
        weights = [constant(each) for each in (packed, np.float32(scales), np.float32(zeros))]
        made = RELAX.again(call, [data, *weights])
        product = lower_matmul_of_bits(at.builder.normalize(made), at)
        assert product is not None, "weights are constant"
        return relax.op.astype(at.builder.emit(product), dtype)
    k = int(data.ty.shape.values[-1])
    chosen = None
    if shape is None or 0 not in shape:
        n, _, octets = packed.shape
        lead = (MOST_ROWS,) if shape is None else shape[:-1]
        block, rounds = octets * 8 // bits, bool(call.attrs["rounds"])
        workload = BitsWorkload(lead, n, k, block, bits, dtype, _only_zero(zeros), rounds)
        chosen = at.choose("nn.matmul_of_bits", workload)
    if chosen is None:
        matrix = constant(np.ascontiguousarray(widened(packed, scales, zeros, bits, k).T))
        product = at.builder.normalize(relax.op.matmul(data, matrix))
        lowered = lower_matmul(product, at)
        return product if lowered is None else lowered
    impl, config = chosen
    pack_weight = impl.pack
    assert pack_weight is not None, f"{impl.name} has no weight-packing function"

    def packing(ops: Any, array: Any) -> Any:
        return pack_weight(ops, array, config)

    def compute(x: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        own = replace(workload, lead=tuple(x.shape[:-1])) if shape is None else workload
        return impl.compute(own, config, x, *tensors)

    weights = [constant(np.ascontiguousarray(packed).view("<u4")), *weights[1:]]
    if workload.zero is not None:
        weights = weights[:2]
    packed_weights = [pack(at.builder, weight, packing) for weight in weights]
    return at.call("matmul_of_bits", compute, data, *packed_weights, operators="nn.matmul_of_bits")


def _only_zero(zeros: np.ndarray) -> int | None:
    """The zero point, if all blocks share one and it is an integer that fits a byte."""
    first = zeros.reshape(-1)[0]
    is_one = np.all(zeros == first) and float(first) in range(256)
    return int(first) if is_one else None


def widened(
    packed: np.ndarray, scales: np.ndarray, zeros: np.ndarray, bits: int, k: int
) -> np.ndarray:
    """The unpacked weights (n, k)."""
    n, blocks, _ = packed.shape
    shifts = np.arange(0, 8, bits, dtype="uint8")
    whole = (packed[..., np.newaxis] >> shifts) & np.uint8((1 << bits) - 1)
    real = (whole.reshape(n, blocks, -1) - zeros[..., np.newaxis]) * scales[..., np.newaxis]
    return real.reshape(n, -1)[:, :k].astype(scales.dtype)
