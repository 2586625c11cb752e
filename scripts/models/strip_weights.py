"""Make a weightless skeleton of an ONNX model, as `compiler.models` bundles them.

python -m scripts.models.strip_weights IN.onnx NAME
"""

from __future__ import annotations

import argparse
import json
import pathlib

import onnx
from onnx import numpy_helper

from compiler.models.fill_weights import KEY, skeleton


def strip(model: onnx.ModelProto, keep_elements: int = 512) -> onnx.ModelProto:
    """Replace float initializers of more than `keep_elements` elements by their description.

    Changes `model` and returns it.
    """
    kept: list[onnx.TensorProto] = []
    described = {}
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.size <= keep_elements or array.dtype.kind != "f":
            kept.append(tensor)
            continue
        described[tensor.name] = {
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "mean": float(array.mean(dtype="f8")),
            "std": float(array.std(dtype="f8")),
            "non_negative": bool((array >= 0).all()),
        }
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    entry = model.metadata_props.add()
    entry.key, entry.value = KEY, json.dumps(described)
    return model


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=pathlib.Path, help="an ONNX file")
    parser.add_argument("name", help="of the skeleton")
    args = parser.parse_args()
    path = skeleton(args.name)
    onnx.save(strip(onnx.load(args.model)), path)
    print(path)


if __name__ == "__main__":
    main()
