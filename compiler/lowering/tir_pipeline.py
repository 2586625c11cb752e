"""The TIR pipeline of every kernel that Baton compiles: TVM's, with three passes for the CPU."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from .loop_guard import guard_loops
from .microkernel import outline_microkernels
from .prefetch import insert_prefetches
from .scalar_calls import split_scalar_calls

PIPELINE = "baton"
"""Name under which TVM knows the pipeline."""


def _pipeline() -> tuple[Any, Any, Any]:
    """TVM's default pipeline with our passes in front of code generation for the CPU."""
    lower, finalize_host, finalize_device = tirx.get_tir_pipeline("default")

    def with_our_passes() -> tvm.transform.Pass:
        ours = [guard_loops(), insert_prefetches(), outline_microkernels(), split_scalar_calls()]
        return tvm.transform.Sequential([*ours, finalize_host()])

    return lower, with_our_passes, finalize_device


tirx.register_tir_pipeline(PIPELINE, _pipeline)
