"""Operators that PyTorch's ONNX exporter lacks, or takes for some dtypes only, as Relax's.

Converters are those of `custom_convert_map`: functions of the operands and of their types' names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

Converter = Callable[[Sequence[Any], Sequence[str]], relax.Expr]


def _unary(name: str) -> Converter:
    """A function of floats, which integers are made first."""
    of_floats: Callable[[relax.Expr], relax.Expr] = getattr(relax.op, name)

    def convert(inputs: Sequence[Any], types: Sequence[str]) -> relax.Expr:
        whole = "int" in types[0] or types[0] == "bool"
        return of_floats(relax.op.astype(inputs[0], "float32") if whole else inputs[0])

    return convert


def _bitwise(name: str) -> Converter:
    """A function of the bits of integers, in the widest dtype of the tensors."""

    def convert(inputs: Sequence[Any], types: Sequence[str]) -> relax.Expr:
        tensors = [each for value, each in zip(inputs, types) if isinstance(value, relax.Expr)]
        dtype = str(np.result_type(*tensors))
        kind = "logical" if dtype == "bool" else "bitwise"

        def operand(value: Any, each: str) -> relax.Expr:
            if not isinstance(value, relax.Expr):
                return relax.const(value, dtype)
            return value if each == dtype else relax.op.astype(value, dtype)

        made: relax.Expr = getattr(relax.op, f"{kind}_{name}")(*map(operand, inputs, types))
        return made

    return convert


CONVERTED: dict[str, Converter] = {
    **{f"aten::{name}": _unary(name) for name in ("acosh", "asinh", "atanh", "cosh", "sinh")},
    **{f"aten::bitwise_{name}": _bitwise(name) for name in ("and", "not", "or", "xor")},
    **{f"aten::__{name}__": _bitwise(name) for name in ("and", "or", "xor")},
}
