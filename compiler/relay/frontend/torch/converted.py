"""Relax forms, as `custom_convert_map` takes them, of operators that PyTorch's exporter lacks."""

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


def _searchsorted(inputs: Sequence[Any], _types: Sequence[str]) -> relax.Expr:
    """Where values belong in a sorted tensor."""
    from compiler.relay.op.algorithm import searchsorted

    ordered, values, int32, right, side = inputs[:5]
    if len(inputs) > 5 and inputs[5] is not None:
        ordered = relax.op.gather_elements(ordered, inputs[5], axis=-1)
    if not isinstance(values, relax.Expr):
        values = relax.const(values, ordered.ty.dtype)
    return searchsorted(
        ordered, values, bool(right) or side == "right", "int32" if int32 else "int64"
    )


def _grid_sampler_3d(inputs: Sequence[Any], _types: Sequence[str]) -> relax.Expr:
    """Values between the voxels, at the places of a grid whose last axis is their coordinates."""
    from compiler.relay.op.image import grid_sample

    data, grid, mode, padding, aligned = inputs
    return grid_sample(
        data,
        relax.op.permute_dims(grid, [0, 4, 1, 2, 3]),
        ("bilinear", "nearest")[mode],
        "NCDHW",
        ("zeros", "border", "reflection")[padding],
        aligned,
    )


CONVERTED: dict[str, Converter] = {
    **{f"aten::{name}": _unary(name) for name in ("acosh", "asinh", "atanh", "cosh", "sinh")},
    **{f"aten::bitwise_{name}": _bitwise(name) for name in ("and", "not", "or", "xor")},
    **{
        f"aten::__{place}{name}__": _bitwise(name)
        for name in ("and", "or", "xor")
        for place in ("", "i")
    },
    "aten::grid_sampler_3d": _grid_sampler_3d,
    "aten::searchsorted": _searchsorted,
}
