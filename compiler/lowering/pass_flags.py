"""Passes and implementations that a PassContext can disable in a build."""

from __future__ import annotations

from typing import NamedTuple

import tvm

from schedules.cuda.templates import winograd_template
from schedules.x86.conv import winograd, winograd_polyphase
from schedules.x86.matmul import low_bit_matmul, strassen

from .. import precision
from ..ir import convert_layout
from .codegen import concat_in_place, cuda_graph


class PassFlag(NamedTuple):
    """A name for `disabled_pass` and `required_pass`, and the `opt_level` that it is on from."""

    name: str
    opt_level: int

    @property
    def enabled(self) -> bool:
        context = tvm.transform.PassContext.current()
        if self.name in context.disabled_pass:
            return False
        return self.name in context.required_pass or context.opt_level >= self.opt_level


_NEVER = 99
"""The level of passes that run only where a context requires them."""

INTEGERS = PassFlag(precision.INTEGERS, 0)
BFLOAT16_PRODUCTS = PassFlag(precision.BFLOAT16_PRODUCTS, 0)
TO_BFLOAT16 = PassFlag(precision.TO_BFLOAT16, _NEVER)
TO_FLOAT16 = PassFlag(precision.TO_FLOAT16, _NEVER)
TO_TF32 = PassFlag(precision.TO_TF32, _NEVER)
MOVE_STRIDES = PassFlag("MoveStrides", 3)
SPLIT_BATCH = PassFlag("SplitBatch", 3)
CONVERT_LAYOUT = PassFlag(convert_layout.NAME, 0)
FOLD_GATE = PassFlag("FoldGate", 3)
FUSE_ATTENTION = PassFlag("FuseAttention", 3)
COMBINE_MATMUL = PassFlag("CombineParallelMatmul", 3)
BLOCK_LAYOUTS = PassFlag("AlterOpLayout", 3)
WINOGRAD = PassFlag(precision.WINOGRAD, 3)
STRASSEN = PassFlag(precision.STRASSEN, _NEVER)
ROUND_ROWS = PassFlag(precision.ROUND_ROWS, 0)
CONCAT_IN_PLACE = PassFlag(concat_in_place.NAME, 3)
FAST_MATH = PassFlag("FastMath", 3)
CUDA_GRAPH = PassFlag(cuda_graph.NAME, 0)

IMPLEMENTATIONS = {
    WINOGRAD: (winograd.NAME, winograd.OF_SHORT, winograd_polyphase.NAME, winograd_template.NAME),
    STRASSEN: (strassen.DENSE, strassen.CONV2D),
    ROUND_ROWS: (low_bit_matmul.INT8,),
}
"""Implementations that round differently, by their switch."""


def disabled_implementations() -> list[str]:
    return [
        name for switch, names in IMPLEMENTATIONS.items() if not switch.enabled for name in names
    ]
