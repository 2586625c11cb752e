"""`tvm.contrib.cblas.*`, which `te.extern` calls: TVM's wheels are built without a BLAS.

They call numpy's BLAS from Python, so libraries with such calls run where Baton is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm


def _matmul(left: Any, right: Any, out: Any, transa: bool = False, transb: bool = False) -> None:
    """The product of two matrices, or of two batches of them, put into `out`."""
    a, b = left.numpy(), right.numpy()
    a = a.swapaxes(-1, -2) if transa else a
    b = b.swapaxes(-1, -2) if transb else b
    out.copyfrom(np.matmul(a, b))


def register() -> None:
    """Register them, unless this TVM has them."""
    for name in ("matmul", "batch_matmul", "batch_matmul_iterative"):
        full = f"tvm.contrib.cblas.{name}"
        if tvm.get_global_func(full, allow_missing=True) is None:
            tvm.register_global_func(full, _matmul)
