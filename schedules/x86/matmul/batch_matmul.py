"""Products of stacks of matrices on x86, as attention has them.

Operands are read through axis permutations: transposed or split matrices need no copy.
"""

from functools import partial

from ...matmul import register_batch_matmul
from .dense import is_dot, is_float
from .matmul_rules import fallback
from .matmul_tile import TiledMatmul, product

TILED = "batch_matmul_tiled.x86"

register_batch_matmul(
    TILED,
    15,
    lambda w, _: is_float(w) and not is_dot(w.m, w.rhs),
    fallback,
    partial(product, TILED),
    rule=TiledMatmul(),
)
