"""Names of `mxnet.nd.sparse`: arrays are dense, so making a sparse one is an error."""

from __future__ import annotations

from typing import Any, NoReturn

from compiler.errors import OutOfScopeError


class CSRNDArray:
    """Class of sparse arrays; no array is an instance of it."""


RowSparseNDArray = CSRNDArray


def csr_matrix(*_: Any, **__: Any) -> NoReturn:
    """Raise OutOfScopeError."""
    raise OutOfScopeError("csr_matrix: only dense arrays are supported")


retain = row_sparse_array = csr_matrix
