"""`tvm.tir.analysis`: what `tvm.tirx` and `tvm.s_tir` tell of functions."""

import math

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import SBlock
from tvm.tirx import IntImm

from schedules.tir_visit import nodes_of

from ..errors import InputError
from .lookup import first_of

expr_deep_equal = tvm_ffi.structural_equal

__getattr__ = first_of(
    "tvm.tir.analysis",
    *(tirx.analysis, s_tir.analysis),
    renamed={
        "find_anchor_block": "find_anchor_sblock",
        "get_block_access_region": "get_sblock_access_region",
        "get_block_read_write_region": "get_sblock_read_write_region",
    },
)


def calculate_workspace_bytes(func: tirx.PrimFunc, workspace_byte_alignment: int) -> int:
    """Sum of the buffers that a function allocates, in bytes.

    `workspace_byte_alignment`: each buffer is rounded up to a multiple of it.
    Raises InputError: the extent of a buffer is dynamic.
    """
    buffers = [each.buffer for each in nodes_of(func.body, tirx.AllocBuffer)]
    buffers += [each for block in nodes_of(func.body, SBlock) for each in block.alloc_buffers]
    total = 0
    for buffer in buffers:
        extents = [int(each) for each in buffer.shape if isinstance(each, IntImm)]
        if len(extents) != len(buffer.shape):
            raise InputError(f"workspace of {buffer.name}: extents {buffer.shape} are dynamic")
        size = math.prod(extents) * tvm.DataType(str(buffer.dtype)).itemsize
        total += -(-size // workspace_byte_alignment) * workspace_byte_alignment
    return total
