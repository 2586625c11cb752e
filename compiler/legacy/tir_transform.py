"""`tvm.tir.transform`: passes that `tvm.tirx`, `tvm.s_tir` and `tvm.transform` share today."""

from tvm import ir, s_tir, tirx

from .lookup import first_of

__getattr__ = first_of(
    "tvm.tir.transform",
    *(tirx.transform, s_tir.transform, ir.transform),
    renamed={
        "CommonSubexprElimTIR": "CommonSubexprElim",
        "MergeDynamicSharedMemoryAllocations": "MergeSharedMemoryAllocations",
        "Simplify": "StmtSimplify",
    },
)
