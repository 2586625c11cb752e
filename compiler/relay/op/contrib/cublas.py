"""cuBLAS backend of Relay's BYOC flow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .register import register_pattern_table
from .tables import Row, chain, dtype, partition, shape

_DTYPES = {
    ("float32", "float32"),
    ("float16", "float16"),
    ("float16", "float32"),
    ("int8", "int32"),
    ("float64", "float64"),
    ("int8", "float32"),
}


def _cublas_product(call: Any) -> bool:
    left, right = call.args
    if dtype(left) != dtype(right) or (dtype(left), dtype(call)) not in _DTYPES:
        return False
    return dtype(left) != "int8" or all(shape(each)[-1] % 4 == 0 for each in call.args)


@register_pattern_table("cublas")
def pattern_table() -> list[Row]:
    """Pattern table: single matmuls."""
    names = ("matmul", "batch_matmul", "dense")
    return [(f"cublas.{each}", chain(f"nn.{each}(_)"), _cublas_product) for each in names]


def partition_for_cublas(mod: Any, params: Mapping[str, Any] | None = None) -> Any:
    """Partition a module for cuBLAS, one function per matmul."""
    return partition(mod, params, "cublas", pattern_table())
