"""The TIR pipeline of every kernel that Baton compiles: TVM's, with more passes for the CPU."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from ...tvm_workarounds import loop_guard
from . import (
    amx,
    argument_checks,
    bfloat16,
    constant_arrays,
    depthwise_interleave,
    elide_casts,
    floordiv_to_truncdiv,
    int8_lut,
    interleave,
    microkernel,
    partial_sums,
    pragmas,
    prefetch,
    prefetch_results,
    propagate_nan,
    scalarize_calls,
)

PASSES = (
    amx,
    argument_checks,
    bfloat16,
    int8_lut,
    constant_arrays,
    interleave,
    loop_guard,
    microkernel,
    elide_casts,
    partial_sums,
    floordiv_to_truncdiv,
    pragmas,
    prefetch,
    prefetch_results,
    propagate_nan,
    scalarize_calls,
    depthwise_interleave,
)
"""Modules of the passes that are added to TVM's."""

PIPELINE = "baton"
"""Name under which TVM knows the pipeline."""


def _pipeline() -> tuple[Any, Any, Any]:
    """TVM's default pipeline, with small constant tables, followed by Baton's CPU passes."""
    lower, finalize_host, finalize_device = tirx.get_tir_pipeline("default")

    def with_our_passes() -> tvm.transform.Pass:
        return tvm.transform.Sequential(
            [
                argument_checks.join_argument_checks(),
                loop_guard.guard_loops(),
                interleave.interleave_vectors(),
                prefetch.insert_prefetches(),
                partial_sums.add_in_blocks(),
                microkernel.outline_microkernels(),
                bfloat16.use_bfloat16_instructions(),
                amx.multiply_tiles(),
                depthwise_interleave.store_squares(),
                scalarize_calls.split_scalar_calls(),
                propagate_nan.propagate_nan(),
                pragmas.drop_unknown_pragmas(),
                floordiv_to_truncdiv.divide_plainly(),
                finalize_host(),
            ]
        )

    def for_devices() -> tvm.transform.Pass:
        return tvm.transform.Sequential(
            [finalize_device(), propagate_nan.propagate_nan(on_device=True)]
        )

    first = tvm.transform.Sequential(
        [elide_casts.drop_needless_casts(), bfloat16.round_bfloat16(), lower]
    )
    folded = int8_lut.fold_byte_tables(constant_arrays.fold_constant_tables(first))
    return folded, with_our_passes, for_devices


tirx.register_tir_pipeline(PIPELINE, _pipeline)
