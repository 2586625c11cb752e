"""Makers of operators: each adds one operator, with operands and attributes, to a draft."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from onnx import defs

from ..draft import Draft
from . import (
    control,
    elementwise,
    indexing,
    matrix,
    microsoft,
    normalization,
    reduction,
    shape,
    spatial,
)

MAKERS: dict[str, Callable[[Draft, str], None]] = {
    name: maker
    for family in (
        control,
        elementwise,
        indexing,
        matrix,
        microsoft,
        normalization,
        reduction,
        shape,
        spatial,
    )
    for name, maker in family.MAKERS.items()
}
"""Operator, with its domain if that is not ONNX's own, to what draws it."""

_BY_HAND = """
    BitCast Col2Im DFT DeformConv Det MelWeightMatrix STFT TensorScatter TfIdfVectorizer
    ai.onnx.ml.ArrayFeatureExtractor ai.onnx.ml.Binarizer ai.onnx.ml.LinearRegressor
    ai.onnx.ml.TreeEnsemble
    ai.onnx.preview.training.Adagrad ai.onnx.preview.training.Adam
    ai.onnx.preview.training.Momentum
"""

_RANDOM = "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"

NOT_DRAWN = {
    **dict.fromkeys(_BY_HAND.split(), "only cases of onnx/test_features.py and ONNX's node tests"),
    **dict.fromkeys(_RANDOM.split(), "random results"),
    "AllClassNMS": "PyTorch's own; onnxruntime does not have it",
    "BatchNormalization (training)": "inference only",
    "CausalConvWithState": "of operator sets after 23",
    "CumProd": "of operator sets after 23",
    "LinearAttention": "of operator sets after 23",
    "MatMulInteger16": "onnxruntime has it for Windows' own runtime only",
    "SequenceMap": "of sequences of sequences",
    "SwiGLU": "of operator sets after 23",
    "Swish": "of operator sets after 23",
    "SimplifiedLayerNormalization": "onnxruntime's name of RMSNormalization",
    **microsoft.NOT_DRAWN,
}
"""Operators that the importer knows and the generator leaves out, and why."""


@cache
def available(opset: int) -> tuple[str, ...]:
    """Operators that the generator draws for an operator set."""
    return tuple(name for name in sorted(MAKERS) if _exists(name, opset))


def _exists(name: str, opset: int) -> bool:
    if "." in name:
        return True
    try:
        return not defs.get_schema(name, opset, "").deprecated
    except defs.SchemaError:
        return False
