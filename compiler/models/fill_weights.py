#!/usr/bin/env python3
"""Turn a weightless model skeleton in this folder into a runnable ONNX model.

A skeleton (`NAME.skeleton.onnx`) is a real exported graph whose large float initializers were
taken out and described instead, in the model's metadata, by shape, mean and standard deviation.
`hydrate` puts seeded random tensors with those statistics back, so that the same model comes out
on every machine.

    python fill_weights.py NAME OUT.onnx          # one model
    python fill_weights.py --all OUT_FOLDER       # every skeleton in this folder
    python fill_weights.py --strip IN.onnx NAME   # a new skeleton from a model

Needs only numpy and onnx.
"""

from __future__ import annotations

import argparse
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
    parser.add_argument("--all", action="store_true", help="every skeleton; OUT is a folder")
    parser.add_argument("--strip", metavar="IN", type=pathlib.Path, help="OUT is a skeleton's name")
    parser.add_argument("name", nargs="?", help=f"one of {', '.join(names())}; OUT is a file")
    parser.add_argument("out", metavar="OUT", type=pathlib.Path)
    args = parser.parse_args()
    if args.strip is not None:
        path = HERE / f"{args.out.name}{SUFFIX}"
        onnx.save(strip(onnx.load(args.strip)), path)
        print(path)
        return
    if not args.all and args.name is None:
        parser.error("give the name of a skeleton, or --all")
    wanted = [(name, args.out / f"{name}.onnx") for name in names()] if args.all else []
    for name, path in wanted or [(args.name, args.out)]:
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(hydrate(name), path)
        print(path)


if __name__ == "__main__":
    main()
