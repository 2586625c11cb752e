"""`tvm.ir.TensorAffineType` and `TupleAffineType`, which rules on integers of scripts return."""

from __future__ import annotations

import tvm

from ..relay.op.affine_type import TensorAffineType, TupleAffineType
from .patches import Patches


def patch(patches: Patches) -> None:
    """Let `tvm.ir` have the affine types that `FakeQuantizationToInteger` knows."""
    patches.add(tvm.ir, "TensorAffineType", TensorAffineType)
    patches.add(tvm.ir, "TupleAffineType", TupleAffineType)
