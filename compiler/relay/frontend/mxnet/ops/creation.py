"""Operators that make arrays."""

from __future__ import annotations

import numpy as np
from tvm import relax

from compiler.errors import FrontendError
from compiler.ir.constants import constant

from ..node import SymbolNode


def _filled(value: float) -> object:
    def convert(node: SymbolNode) -> relax.Expr:
        return constant(np.full(_shape(node), value, _dtype(node)))

    return convert


def _shape(node: SymbolNode) -> tuple[int, ...]:
    shape = node.integers("shape", ())
    if any(extent < 0 for extent in shape):
        raise FrontendError(f"{node.describe()}: shape {shape}")
    return shape


def _dtype(node: SymbolNode) -> str:
    return node.dtype_attr("float32")


def full(node: SymbolNode) -> relax.Expr:
    """One number everywhere."""
    return constant(np.full(_shape(node), node.number("value"), _dtype(node)))


def _like(value: float) -> object:
    def convert(node: SymbolNode) -> relax.Expr:
        return constant(np.full(node.shape(0), value, node.dtype(0)))

    return convert


def full_like(node: SymbolNode) -> relax.Expr:
    dtype = node.dtype_attr(node.dtype(0))
    return constant(np.full(node.shape(0), node.number("fill_value"), dtype))


def arange(node: SymbolNode) -> relax.Expr:
    """Evenly spaced numbers, each `repeat` times; without `stop` from 0 to `start`."""
    start, step = node.number("start", 0.0), node.number("step", 1.0)
    stop = node.number("stop", float("nan"))
    if np.isnan(stop):
        start, stop = 0.0, start
    if step == 0:
        raise FrontendError(f"{node.describe()}: step is 0")
    values = np.arange(start, stop, step)
    return constant(np.repeat(values, node.integer("repeat", 1)).astype(_dtype(node)))


def arange_like(node: SymbolNode) -> relax.Expr:
    """Evenly spaced numbers, as many as the input has elements, or along one axis of it."""
    shape, repeat = node.shape(0), node.integer("repeat", 1)
    axis = node.integer("axis", None)
    wanted = shape if axis is None else (shape[node.axis(axis, len(shape))],)
    numbers = np.arange(int(np.prod(wanted))) // repeat
    values = node.number("start", 0.0) + node.number("step", 1.0) * numbers
    return constant(values.reshape(wanted).astype(node.dtype(0)))


def shape_array(node: SymbolNode) -> relax.Expr:
    return constant(np.array(node.shape(0), "int64"))


def size_array(node: SymbolNode) -> relax.Expr:
    return constant(np.array([int(np.prod(node.shape(0)))], "int64"))


CONVERTERS = {
    "_ones": _filled(1.0),
    "_npi_ones": _filled(1.0),
    "_zeros": _filled(0.0),
    "_npi_zeros": _filled(0.0),
    **dict.fromkeys(("_full", "_npi_full"), full),
    "ones_like": _like(1.0),
    "zeros_like": _like(0.0),
    "_npi_full_like": full_like,
    **dict.fromkeys(("_arange", "_npi_arange"), arange),
    "_contrib_arange_like": arange_like,
    "shape_array": shape_array,
    "size_array": size_array,
}
