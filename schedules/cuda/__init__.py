"""CUDA schedules: the rules that turn fused functions into kernels, in their order."""

from __future__ import annotations

from .verified_rule import TVM_REFUSALS, Checked
from .verify import has_thread_bindings, violation


def rules() -> list[Checked]:
    """The rules for a CUDA target, first to last; the last takes any function of blocks.

    A `tvm.s_tir.dlight.ScheduleRule` with a `name` gets a whole fused function (an anchor, its
    elementwise epilogue, perhaps producers such as padding) and returns a schedule that runs in
    threads only and keeps the target's limits, or None when the next rule must try.
    """
    from tvm.s_tir.dlight import gpu

    from .gemm.convolution import Convolution
    from .gemm.dlight_matmul import Products
    from .gemm.float32_products import Float32Products
    from .gemm.tensor_cores import TensorCores
    from .opaque import Opaque
    from .register_tiles import RegisterTiles, Windows
    from .row_reductions import RowReductions
    from .split_reduction import WideReduction
    from .transpose import Transpose

    return [
        Checked("cuda.tensor_cores", TensorCores()),
        Checked("cuda.float32_products", Float32Products()),
        Checked("cuda.convolution", Convolution()),
        Checked("dlight.matmul", Products(), TVM_REFUSALS),
        Checked("cuda.split_reduction", WideReduction()),
        Checked("cuda.row_reductions", RowReductions()),
        Checked("cuda.windows", Windows()),
        # No gpu.GEMV: where its rows don't divide by its threads it writes beyond the output
        # (seen in 0.27, cross-thread reduction lowering drops the predicate).
        Checked("dlight.reduction", gpu.Reduction(), TVM_REFUSALS),
        Checked("dlight.general_reduction", gpu.GeneralReduction(), TVM_REFUSALS),
        Checked("cuda.transpose", Transpose()),
        Checked("cuda.stages", RegisterTiles()),
        Checked("cuda.opaque", Opaque()),
    ]
