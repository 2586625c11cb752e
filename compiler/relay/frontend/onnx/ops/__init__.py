"""Converters of ONNX operators that TVM's importer lacks or converts badly, one family per file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..node import Node
from . import (
    control_flow,
    convolution,
    elementwise,
    features,
    indexing,
    linear,
    microsoft,
    normalization,
    pooling,
    quantization,
    random,
    recurrent,
    reduction,
    resize,
    sequence,
    shape,
    signal,
    training,
    vision,
)
from . import im2col as columns

CONVERTERS: dict[tuple[str, str], Callable[[Node], Any]] = {
    ("", name): converter
    for family in (
        *(columns, control_flow, convolution, elementwise, features, indexing, linear),
        *(normalization, pooling, quantization, random, recurrent, reduction, resize, sequence),
        *(shape, signal, vision),
    )
    for name, converter in family.CONVERTERS.items()
}
CONVERTERS |= microsoft.CONVERTERS | {
    (domain, name): each
    for domain, family in (
        ("ai.onnx.ml", features.ML_CONVERTERS),
        ("ai.onnx.preview.training", training.CONVERTERS),
    )
    for name, each in family.items()
}
"""(domain, operator) to its converter, which returns one expression, a list with one for each
output, or None to leave this form of the operator to TVM's own converter."""

PREFER_FUNCTION = frozenset({("", "Attention"), ("", "SoftmaxCrossEntropyLoss")})
"""Operators that are converted by ONNX's function body though TVM has a converter of that name."""
