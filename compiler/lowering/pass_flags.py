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


class Switch(NamedTuple):
    """A name for `disabled_pass` and `required_pass`, and the `opt_level` that it is on from."""

    name: str
    opt_level: int

    @property
    def on(self) -> bool:
        """Whether the current PassContext enables it."""
        context = tvm.transform.PassContext.current()
        if self.name in context.disabled_pass:
            return False
        return self.name in context.required_pass or context.opt_level >= self.opt_level


_NEVER = 99
"""The level of passes that run only where a context requires them."""

INTEGERS = Switch(precision.INTEGERS, 0)
BFLOAT16_PRODUCTS = Switch(precision.BFLOAT16_PRODUCTS, 0)
TO_BFLOAT16 = Switch(precision.TO_BFLOAT16, _NEVER)
TO_FLOAT16 = Switch(precision.TO_FLOAT16, _NEVER)
TO_TF32 = Switch(precision.TO_TF32, _NEVER)
MOVE_STRIDES = Switch("MoveStrides", 3)
SPLIT_BATCH = Switch("SplitBatch", 3)
CONVERT_LAYOUT = Switch(convert_layout.NAME, 0)
FOLD_GATE = Switch("FoldGate", 3)
FUSE_ATTENTION = Switch("FuseAttention", 3)
COMBINE_MATMUL = Switch("CombineParallelMatmul", 3)
BLOCK_LAYOUTS = Switch("AlterOpLayout", 3)
WINOGRAD = Switch(precision.WINOGRAD, 3)
STRASSEN = Switch(precision.STRASSEN, _NEVER)
ROUND_ROWS = Switch(precision.ROUND_ROWS, 0)
CONCAT_IN_PLACE = Switch(concat_in_place.NAME, 3)
FAST_MATH = Switch("FastMath", 3)
CUDA_GRAPH = Switch(cuda_graph.NAME, 0)

IMPLEMENTATIONS = {
    WINOGRAD: (winograd.NAME, winograd.OF_SHORT, winograd_polyphase.NAME, winograd_template.NAME),
    STRASSEN: (strassen.DENSE, strassen.CONV2D),
    ROUND_ROWS: (low_bit_matmul.INT8,),
}
"""Implementations that round differently, by their switch."""


def disabled_implementations() -> list[str]:
    """Names of the implementations that the current PassContext disables."""
    return [name for switch, names in IMPLEMENTATIONS.items() if not switch.on for name in names]
