#!/usr/bin/env python3
"""Compare every quantized tensor of quantized ONNX models with onnxruntime's.

    python -m scripts.models.quantized models-q models/*.onnx --kinds qdq dynamic
    python -m scripts.conformance.quantized_tensors models-q/*_qdq.onnx

All tensors of bytes that a node computes become results of the model. First each is computed from
those that onnxruntime has in front of it, then all from the same seeded inputs, where a difference
is handed on to the layers behind it. The table has, for each model, how many tensors there are,
which share of their elements is another integer than onnxruntime's, how far the furthest is from it
in quanta, and the share that is further than one. Beside that are the weights of the library, and
those of the model of floats, of which the folder FLOATS has MODEL.onnx for MODEL_qdq.onnx.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tvm

from compiler import relay
from compiler.runtime.graph_executor import GraphModule
from scripts.models.quantized import random_inputs

BYTES = (onnx.TensorProto.UINT8, onnx.TensorProto.INT8)
KINDS = ("_qdq", "_qoperator", "_dynamic")
SEED = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", type=pathlib.Path, nargs="+")
    parser.add_argument("--floats", type=pathlib.Path, help="a folder: also the weights' sizes")
    given = parser.parse_args()
    header = "| model | tensors | elements | other | most | further than 1"
    header += " | handed on: other | most | further than 1 |"
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
    elements = sum(value.size for value in wanted.values())
    alone = differences(each_alone(model, wanted), feeds | given_names(wanted), wanted)
    return [str(len(names)), str(elements), *alone, *differences(model, feeds, wanted)]


def differences(
    model: onnx.ModelProto, feeds: dict[str, np.ndarray], wanted: dict[str, np.ndarray]
) -> list[str]:
    """Cells: the share of other elements, the most quanta, the share of further ones."""
    apart = [
        np.abs(result.astype("int32") - wanted[name].astype("int32")).ravel()
        for name, result in results(model, [*wanted], feeds)
    ]
    joined = np.concatenate(apart)
    other, further = 100 * np.mean(joined > 0), 100 * np.mean(joined > 1)
    return [f"{other:.3f} %", str(joined.max(initial=0)), f"{further:.4f} %"]


def given_names(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The values by the names of the inputs of `each_alone`."""
    return {f"{name}_given": value for name, value in values.items()}


def each_alone(model: onnx.ModelProto, values: dict[str, np.ndarray]) -> onnx.ModelProto:
    """The model whose nodes read inputs instead of the tensors that are its results."""
    apart = onnx.ModelProto()
    apart.CopyFrom(model)
    read = set()
    for node in apart.graph.node:
        for place, name in enumerate(node.input):
            if name in values:
                read.add(name)
                node.input[place] = f"{name}_given"
    for name in [name for name in values if name in read]:
        kind = onnx.helper.np_dtype_to_tensor_dtype(values[name].dtype)
        shape = values[name].shape
        apart.graph.input.append(onnx.helper.make_tensor_value_info(f"{name}_given", kind, shape))
    return apart


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
    known = {value.name for value in model.graph.input}
    module.run(**{name: value for name, value in feeds.items() if name in known})
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
