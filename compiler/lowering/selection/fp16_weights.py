"""Weights of products that wait for memory, as numbers of 16 bits.

Float32 weights that are numbers of 16 bits, as a float16 model's are after it was widened, become
those again where that takes less time; others are rounded to float16 if a build is asked for it.
"""

from __future__ import annotations

import numpy as np
from tvm.target import Target

from schedules.matmul import DenseWorkload
from schedules.x86.matmul import dense_fp16_weight

from ...ir.constants import numpy_type

_SAMPLE = 4096  # elements that tell most weights that do not fit from those that do


def narrowed(
    weights: np.ndarray, workload: DenseWorkload, target: Target, may_round: bool
) -> np.ndarray | None:
    """The weights of a dense layer in the type that it had better read; None to leave them.

    Parameters
    ----------
    weights : np.ndarray
        float32.
    may_round : bool
        Whether numbers between those of float16 are rounded. Weights beyond its range never are.
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
