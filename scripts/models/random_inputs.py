"""Seeded inputs of ONNX models."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

LARGEST_TOKEN = 1000


def random_inputs(
    model: onnx.ModelProto, rng: np.random.Generator, extents: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Normally distributed floats, small integers and masks of ones for all inputs but weights.

    `extents` has the extents of symbolic dimensions, which are 1 otherwise.
    """
    weights = {weight.name for weight in model.graph.initializer}
    feeds: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        kind = value.type.tensor_type
        shape = [
            (extents or {}).get(dim.dim_param, max(dim.dim_value, 1)) for dim in kind.shape.dim
        ]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if np.issubdtype(dtype, np.floating):
            feeds[value.name] = rng.standard_normal(shape).astype(dtype)
        elif "mask" in value.name:
            feeds[value.name] = np.ones(shape, dtype)
        else:
            feeds[value.name] = rng.integers(0, LARGEST_TOKEN, shape).astype(dtype)
    return feeds
