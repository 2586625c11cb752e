#!/usr/bin/env python3
"""Compare every quantised tensor of quantised ONNX models with onnxruntime's.

    python scripts/dev/make_quantised_models.py models-q models/*.onnx --kinds qdq dynamic
    python scripts/dev/compare_quantised.py models-q/*_qdq.onnx

All tensors of bytes that a node computes become results of the model, in both engines, on the same
seeded inputs. The table has, for each model, how many of them there are, which share of their
elements is another integer than onnxruntime's, how far the furthest is from it in quanta, and the
share that is further than one. A difference is handed on to all layers behind it. Beside that are
the weights of the library, and those of the model of floats, of which the folder FLOATS has
MODEL.onnx for MODEL_qdq.onnx.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tvm

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from make_quantised_models import random_inputs

from compiler import relay
from compiler.runtime.graph_executor import GraphModule

BYTES = (onnx.TensorProto.UINT8, onnx.TensorProto.INT8)
KINDS = ("_qdq", "_qoperator", "_dynamic")
SEED = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", type=pathlib.Path, nargs="+")
    parser.add_argument("--floats", type=pathlib.Path, help="a folder: also the weights' sizes")
    given = parser.parse_args()
    header = "| model | tensors | elements | other | most | further than 1 |"
    print(header + (" MB | MB float32 | share |" if given.floats else ""))
    for path in given.models:
        cells = [path.stem, *compared(path)]
        if given.floats:
            cells += sizes(path, given.floats)
        print("| " + " | ".join(cells) + " |", flush=True)


def compared(path: pathlib.Path) -> list[str]:
    """The cells of a model's results."""
    model = with_results(onnx.load(path))
    names = [value.name for value in model.graph.output]
    feeds = random_inputs(model, np.random.default_rng(SEED))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    wanted = dict(zip(names, session.run(names, feeds), strict=True))
    elements = other = further = most = 0
    for name, result in results(model, names, feeds):
        apart = np.abs(result.astype("int32") - wanted[name].astype("int32"))
        elements, other = elements + apart.size, other + int((apart > 0).sum())
        further, most = further + int((apart > 1).sum()), max(most, int(apart.max(initial=0)))
    return [
        *(str(len(names)), str(elements), f"{100 * other / max(elements, 1):.2f} %"),
        *(str(most), f"{100 * further / max(elements, 1):.3f} %"),
    ]


def with_results(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its computed tensors of bytes for results; the others are dropped."""
    typed = onnx.shape_inference.infer_shapes(model).graph
    values = {value.name: value for value in (*typed.value_info, *typed.output)}
    known = {weight.name for weight in model.graph.initializer}
    made = [
        values[name]
        for node in model.graph.node
        if not known.issuperset(node.input)
        for name in node.output
        if name in values and values[name].type.tensor_type.elem_type in BYTES
    ]
    del model.graph.output[:]
    model.graph.output.extend(made)
    return model


def results(
    model: onnx.ModelProto, names: list[str], feeds: dict[str, np.ndarray]
) -> Iterator[tuple[str, Any]]:
    """Baton's results by name."""
    module = GraphModule(built(model)["default"](tvm.cpu()))
    module.run(**feeds)
    for index, name in enumerate(names):
        yield name, module.get_output(index).numpy()


def built(model: onnx.ModelProto) -> Any:
    """The library of a model."""
    mod, params = relay.frontend.from_onnx(model)
    return relay.build(mod, "llvm", params=params)


def sizes(path: pathlib.Path, floats: pathlib.Path) -> list[str]:
    """MB of the weights in the library, of those of the model of floats, and the share."""
    name = path.stem
    for kind in KINDS:
        name = name.removesuffix(kind)
    paths = (path, floats / f"{name}.onnx")
    own, wide = (built(onnx.load(each)).report.weights_bytes / 1e6 for each in paths)
    return [f"{own:.1f}", f"{wide:.1f}", f"{own / wide:.2f}"]


if __name__ == "__main__":
    main()
