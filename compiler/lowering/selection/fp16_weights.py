"""float16 weights for matmuls that are bound by memory bandwidth.

Float32 weights whose values are exact in 16 bits, as in a widened float16 model, are narrowed
again if that is faster. Other weights are rounded to float16 only if a build requests it.
"""

from __future__ import annotations

import numpy as np
from tvm.target import Target

from schedules.matmul import DenseWorkload
from schedules.x86.matmul import dense_fp16_weight

from ...ir.constants import numpy_type

_SAMPLE = 4096  # elements that suffice to reject most weights that are not exact


def narrowed(
    weights: np.ndarray, workload: DenseWorkload, target: Target, may_round: bool
) -> np.ndarray | None:
    """Narrow float32 weights of a dense layer to the fastest dtype; None to leave them.

    `may_round` rounds values between those of float16, but never values beyond its range.
    """
    for dtype in dense_fp16_weight.NARROW:
        if not dense_fp16_weight.pays(workload, dtype, target):
            continue
        if may_round and dtype == "float16" and np.abs(weights).max() <= np.finfo(dtype).max:
            return weights.astype(dtype)
        if all(_fits(each, dtype) for each in (weights.reshape(-1)[:_SAMPLE], weights)):
            return weights.astype(numpy_type(dtype))
    return None


def _fits(weights: np.ndarray, dtype: str) -> bool:
    with np.errstate(over="ignore"):
        return np.array_equal(weights.astype(numpy_type(dtype)).astype("float32"), weights)
