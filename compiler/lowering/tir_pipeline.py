"""The TIR pipeline of every kernel that Baton compiles: TVM's, with more passes for the CPU."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from .constant_tables import fold_constant_tables
from .interleave import interleave_vectors
from .loop_guard import guard_loops
from .microkernel import outline_microkernels
from .prefetch import insert_prefetches
from .scalar_calls import split_scalar_calls

PIPELINE = "baton"
"""Name under which TVM knows the pipeline."""


def _pipeline() -> tuple[Any, Any, Any]:
    """TVM's default pipeline, with small constant tables, and our passes behind it for the CPU."""
    lower, finalize_host, finalize_device = tirx.get_tir_pipeline("default")

    def with_our_passes() -> tvm.transform.Pass:
        return tvm.transform.Sequential(
            [
                guard_loops(),
                interleave_vectors(),
                insert_prefetches(),
                outline_microkernels(),
                split_scalar_calls(),
                finalize_host(),
            ]
        )

    return fold_constant_tables(lower), with_our_passes, finalize_device


tirx.register_tir_pipeline(PIPELINE, _pipeline)
