"""`tvm.tir.transform`: passes that `tvm.tirx`, `tvm.s_tir` and `tvm.transform` share today."""

from typing import Any

from tvm import ir, s_tir, tirx

from .lookup import first_of


def RemoveWeightLayoutRewriteBlock(skip_ndarray_rewrite: bool = False) -> Any:
    """The pass of this name, with its option as it was called."""
    return s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=skip_ndarray_rewrite)


def StorageFlatten(cache_line_size: int, create_bound_attribute: bool = False) -> Any:
    """A pass that flattens buffers to one dimension; the options have no effect."""
    return tirx.transform.FlattenBuffer()


__getattr__ = first_of(
    "tvm.tir.transform",
    *(tirx.transform, s_tir.transform, ir.transform),
    renamed={
        "CommonSubexprElimTIR": "CommonSubexprElim",
        "MergeDynamicSharedMemoryAllocations": "MergeSharedMemoryAllocations",
        "Simplify": "StmtSimplify",
    },
)
