"""The TIR pipeline of every kernel that Baton compiles: TVM's, with more passes for the CPU."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from ...tvm_workarounds.loop_guard import guard_loops
from .amx import multiply_tiles
from .argument_checks import join_argument_checks
from .bfloat16 import round_bfloat16, use_bfloat16_instructions
from .constant_arrays import fold_constant_tables
from .depthwise_interleave import store_squares
from .elide_casts import drop_needless_casts
from .floordiv_to_truncdiv import divide_plainly
from .inf_reduction_init import start_on_device
from .int8_lut import fold_byte_tables
from .interleave import interleave_vectors
from .microkernel import outline_microkernels
from .partial_sums import add_in_blocks
from .prefetch import insert_prefetches
from .propagate_nan import propagate_nan
from .scalarize_calls import split_scalar_calls

PIPELINE = "baton"
"""Name under which TVM knows the pipeline."""

_KNOWN_PRAGMAS = ("pragma_import_", "pragma_parallel_")


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="DropUnknownPragmas")
def drop_unknown_pragmas(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
    """Drop marks for other targets and `pragma_scope`, for which TVM's CPU codegen would warn."""

    def body(attr: tirx.AttrStmt) -> Any:
        is_unknown = attr.attr_key.startswith("pragma_")
        return attr.body if is_unknown and not attr.attr_key.startswith(_KNOWN_PRAGMAS) else attr

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.AttrStmt, body)))


def optional_cpu_passes() -> list[tvm.transform.Pass]:
    """Baton's CPU passes that kernels can do without, in order."""
    return [
        *(interleave_vectors, insert_prefetches, add_in_blocks, outline_microkernels),
        *(use_bfloat16_instructions, multiply_tiles, store_squares, split_scalar_calls),
        *(propagate_nan(), drop_unknown_pragmas, divide_plainly),
    ]


def _pipeline() -> tuple[Any, Any, Any]:
    """TVM's default pipeline, with small constant tables, followed by Baton's CPU passes."""
    lower, finalize_host, finalize_device = tirx.get_tir_pipeline("default")
    first = tvm.transform.Sequential([drop_needless_casts, round_bfloat16, lower])
    for_cpus = [join_argument_checks, guard_loops(), *optional_cpu_passes()]
    return (
        fold_byte_tables(fold_constant_tables(first)),
        lambda: tvm.transform.Sequential([*for_cpus, finalize_host()]),
        lambda: tvm.transform.Sequential(
            [start_on_device(), finalize_device(), propagate_nan(on_device=True)]
        ),
    )


tirx.register_tir_pipeline(PIPELINE, _pipeline)
