"""Weights of the six models and of their libraries, made from seeds as where they were built."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np


def seeded(name: str, info: Mapping[str, Any]) -> np.ndarray:
    """An initializer of a model as `compiler.models.fill_weights` fills it in.

    `info`: "shape", "mean", "std", "non_negative" and "dtype" of a skeleton.
    """
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    shape, std = info["shape"], info["std"]
    if len(shape) == 4:
        std = (2.0 / np.prod(shape[1:])) ** 0.5
    array = info["mean"] + std * rng.standard_normal(shape, dtype="f4")
    if info["non_negative"]:
        array = np.abs(array)
    return array.astype(info["dtype"])


def apply_recipe(
    recipe: Mapping[str, Any], sources: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray]
) -> np.ndarray:
    """A library's weight: an array as it is, or parts of sources concatenated along an axis."""
    if "array" in recipe:
        return arrays[recipe["array"]]
    parts = [
        apply_part(part, sources[part["source"]], arrays.get(part.get("scale", "")))
        for part in recipe["parts"]
    ]
    return np.ascontiguousarray(np.concatenate(parts, recipe["axis"]))


def apply_part(part: Mapping[str, Any], values: np.ndarray, scale: np.ndarray | None) -> np.ndarray:
    """A source, or rows of it, with channels scaled, axes permuted, and converted."""
    if "rows" in part:
        values = values[part["rows"]]
    if scale is not None:
        values = values * scale.reshape(-1, *(1,) * (values.ndim - 1))
    return values.transpose(part["axes"]).reshape(part["shape"]).astype(part["dtype"])


def digest(values: np.ndarray) -> str:
    """Digest of a weight, to compare it between machines."""
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]
