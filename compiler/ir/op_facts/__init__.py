"""Operator facts: one table that all passes read.

`relax_operators` declares Relax's operators. Operators that Baton adds declare theirs where they
are defined, with `compiler.relay.op.te_op.kernel`.
"""

from . import relax_operators as relax_operators
from .facts import (
    BINARY,
    CONCAT,
    CONVOLUTION,
    FOLLOWS,
    IN_FLOAT32,
    OTHER,
    POINTWISE,
    POOL,
    PREDICATE,
    REDUCTION,
    RESHAPE,
    SCATTER,
    SUMS_IN_FLOAT32,
    TRANSPOSE,
    TRANSPOSED_CONVOLUTION,
    UNARY,
    WINDOW,
    Forbidden,
    OpFacts,
    all_facts,
    declare,
    facts_in_onnx,
    facts_in_relay,
    facts_named,
    facts_of,
    nonzero_rejected,
    withdraw,
)
