"""Converters of ONNX operators that TVM's importer lacks or converts badly, one family per file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..onnx_node import Node
from . import (
    control_flow,
    convolution,
    einsum,
    elementwise,
    indexing,
    linear,
    microsoft,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    resize,
    sequence,
    shape,
    vision,
)

CONVERTERS: dict[tuple[str, str], Callable[[Node], Any]] = {
    ("", name): converter
    for family in (
        control_flow,
        convolution,
        einsum,
        elementwise,
        indexing,
        linear,
        normalization,
        pooling,
        quantization,
        recurrent,
        reduction,
        resize,
        sequence,
        shape,
        vision,
    )
    for name, converter in family.CONVERTERS.items()
} | microsoft.CONVERTERS
"""(domain, operator) to its converter, which returns one expression, a list with one for each
output, or None to leave this form of the operator to TVM's own converter."""

PREFER_FUNCTION = frozenset({("", "Attention"), ("", "SoftmaxCrossEntropyLoss")})
"""Operators that are converted by ONNX's function body though TVM has a converter of that name."""
