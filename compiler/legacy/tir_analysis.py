"""`tvm.tir.analysis`: what `tvm.tirx` and `tvm.s_tir` tell of functions."""

import tvm_ffi
from tvm import s_tir, tirx

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
