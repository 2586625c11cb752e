"""A symbol and its parameters as an ONNX model, for inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.backends import onnx_export
from compiler.relay import to_relax
from compiler.relay.frontend.mxnet import from_mxnet

from .symbol import Symbol

if TYPE_CHECKING:
    from onnx import ModelProto

Shape = tuple[int, ...]


def to_onnx(
    symbol: Symbol, params: Mapping[str, Any], shapes: Mapping[str, Shape], dtype: str = "float32"
) -> ModelProto:
    """Export a symbol.

    Parameters
    ----------
    symbol : Symbol
        Subgraph nodes are replaced by their bodies.
    params : mapping of str to array
        Values of all variables but the inputs.
    shapes : mapping of str to tuple of int
        Shapes of the inputs.
    dtype : str
        Of the inputs.

    Returns
    -------
    onnx.ModelProto
        Opset 17; outputs have the names of `list_outputs`, repeated ones with a number.

    Raises
    ------
    UnsupportedOperatorError
        An operator that can't be imported, or not be expressed in ONNX.
    UnknownShapeError
        A variable has neither a value nor a shape.
    """
    arrays = {name: np.asarray(value) for name, value in params.items()}
    mod, values = from_mxnet(symbol, shapes, dtype, arrays)
    initializers = {name: value.numpy() for name, value in values.items()}
    return onnx_export.to_onnx(to_relax(mod), initializers, symbol.list_outputs())
