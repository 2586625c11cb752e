"""Runnable ONNX models from the weightless skeletons in this folder.

A skeleton (`NAME.skeleton.onnx`) is a real exported graph whose large float initializers were
taken out and described instead, in the model's metadata, by shape, mean and standard deviation.
`hydrate` puts seeded random tensors with those statistics back, so that the same model comes out
on every machine. `scripts/models/strip_weights.py` makes a skeleton of a model.
"""

from __future__ import annotations

import json
import pathlib
import zlib

import numpy as np
import onnx
from onnx import numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
KEY = "skeleton_initializers"
SUFFIX = ".skeleton.onnx"


def names() -> list[str]:
    """Names of the skeletons in this folder."""
    return sorted(path.name.removesuffix(SUFFIX) for path in HERE.glob(f"*{SUFFIX}"))


def skeleton(name: str) -> pathlib.Path:
    """The file of the skeleton `name`."""
    return HERE / f"{name}{SUFFIX}"


def hydrate(name: str) -> onnx.ModelProto:
    """Return the skeleton `name` with its described initializers filled in.

    Each tensor has its own seed, from its name. Convolution weights (four dimensions) get the
    deviation that keeps activations in range, whatever the description says.

    Raises
    ------
    FileNotFoundError
        This folder has no such skeleton.
    """
    model = onnx.load(skeleton(name))
    described: dict[str, dict] = {}
    for index, entry in enumerate(model.metadata_props):
        if entry.key == KEY:
            described = json.loads(entry.value)
            del model.metadata_props[index]
            break
    for tensor, info in described.items():
        rng = np.random.default_rng(zlib.crc32(tensor.encode()))
        shape, std = info["shape"], info["std"]
        if len(shape) == 4:
            std = (2.0 / np.prod(shape[1:])) ** 0.5
        array = info["mean"] + std * rng.standard_normal(shape, dtype="f4")
        if info["non_negative"]:
            array = np.abs(array)
        model.graph.initializer.append(numpy_helper.from_array(array.astype(info["dtype"]), tensor))
    return model
