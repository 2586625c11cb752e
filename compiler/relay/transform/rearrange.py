"""Simplify chains of transpose and layout_transform."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tvm import relax

from .. import dialect
from .build import is_op, op


def axes_of(call: relax.Call) -> list[int]:
    """Permutation of a transpose; by default it reverses the axes."""
    rank = call.ty.ndim
    axes = dialect.attributes(call)["axes"] or range(rank)[::-1]
    return [axis % rank for axis in axes]


def transposed(call: relax.Call, data: relax.Expr) -> relax.Expr | None:
    """Simplify this transpose of `data`."""
    axes = axes_of(call)
    if axes == sorted(axes):
        return call.args[0]
    if is_op(data, "transpose"):
        before = axes_of(data)
        return _transpose(data.args[0], [before[axis] for axis in axes])
    if is_op(data, "layout_transform"):
        source, target = _layouts(data)
        if len(source) == len(axes) and source.isalpha() and sorted(source) == sorted(target):
            before = [source.index(axis) for axis in target]
            return _transpose(data.args[0], [before[axis] for axis in axes])
        if len(target) == len(axes) and target.isalpha():
            return _relaid(data.args[0], source, "".join(target[axis] for axis in axes))
    return None


def relaid(call: relax.Call, data: relax.Expr) -> relax.Expr | None:
    """Simplify this layout_transform of `data`."""
    source, target = _layouts(call)
    if source == target:
        return call.args[0]
    if is_op(data, "layout_transform"):
        first, between = _layouts(data)
        return _relaid(data.args[0], first, target) if between == source else None
    if is_op(data, "transpose") and source.isalpha():
        axes = axes_of(data)
        first = "".join(source[axes.index(axis)] for axis in range(len(axes)))
        return _relaid(data.args[0], first, target)
    return None


def _layouts(call: relax.Call) -> tuple[str, str]:
    return str(call.attrs["src_layout"]), str(call.attrs["dst_layout"])


def _transpose(data: relax.Expr, axes: Sequence[int]) -> relax.Expr:
    return data if list(axes) == sorted(axes) else op("transpose", data, axes=list(axes))


def _relaid(data: relax.Expr, source: str, target: str) -> relax.Expr | None:
    """Permutation between two layouts if no axis is split; None if the axes differ."""
    if source == target:
        return data
    if sorted(set(re.findall("[A-Z]", source))) != sorted(set(re.findall("[A-Z]", target))):
        return None
    if source.isalpha() and sorted(source) == sorted(target):
        return _transpose(data, [source.index(axis) for axis in target])
    return op("layout_transform", data, src_layout=source, dst_layout=target)
