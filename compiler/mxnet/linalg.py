"""`np.linalg`: norms, and factorizations that the host computes."""

from __future__ import annotations

from typing import Any

import numpy as _np

from .array.invoke import invoke
from .array.ndarray import ndarray
from .array.wrap import from_host


def norm(x: ndarray, ord: Any = None, axis: Any = None, keepdims: bool = False) -> ndarray:
    """Root of the sum of squares (ord 2, the default), or sum of absolute values (ord 1).

    Without an axis, of all elements.
    """
    if ord in (None, 2, "fro"):
        square = invoke("_npi_square", [x])[0]
        total = invoke("_npi_sum", [square], {"axis": axis, "keepdims": keepdims})[0]
        return invoke("_npi_sqrt", [total])[0]
    if ord == 1:
        size = invoke("_npi_absolute", [x])[0]
        return invoke("_npi_sum", [size], {"axis": axis, "keepdims": keepdims})[0]
    return from_host(_np.asarray(_np.linalg.norm(x.asnumpy(), ord, axis, keepdims)), x.device)


def _on_host(name: str) -> Any:
    function = getattr(_np.linalg, name)

    def compute(*arrays: ndarray) -> Any:
        result = function(*(each.asnumpy() for each in arrays))
        if isinstance(result, tuple):
            return tuple(from_host(_np.asarray(part), arrays[0].device) for part in result)
        return from_host(_np.asarray(result), arrays[0].device)

    compute.__name__ = name
    compute.__doc__ = f"numpy's `linalg.{name}`, computed at once on the host."
    return compute


inv, det, svd, qr = (_on_host(name) for name in ("inv", "det", "svd", "qr"))
eigh, cholesky, solve, slogdet = (_on_host(n) for n in ("eigh", "cholesky", "solve", "slogdet"))
