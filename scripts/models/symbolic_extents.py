"""The bundled models with symbolic extents, as exporters write them with dynamic axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

SHAPE = "dynamic_shape"
_REPLACED = {
    "gather": "dynamic_types",
    "bitwise_and_1": "dynamic_mask",
    "slice_1": "dynamic_position",
}
"""What the static exports of the bundled text models hold as constants of their length."""


def with_symbols(path: Path | onnx.ModelProto) -> onnx.ModelProto:
    """A model with any batch, of texts with any length too.

    Shapes that the static export holds as constants are computed by Shape, Gather and Concat.
    """
    model = path if isinstance(path, onnx.ModelProto) else onnx.load(path)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    texts = [value for value in inputs if len(value.type.tensor_type.shape.dim) == 2]
    for value in inputs:
        dims = value.type.tensor_type.shape.dim
        for dim, name in zip(dims, ("batch", "seq") if value in texts else ("batch",)):
            dim.dim_param = name
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    if texts:
        _free_the_length(model.graph)
    return model


def with_any_batch(model: onnx.ModelProto) -> onnx.ModelProto:
    """A network of images, built for one, with any batch: reshapes keep their first extent, and
    constants that are concatenated with images are repeated for each."""
    graph = model.graph
    known = {tensor.name: tensor for tensor in graph.initializer}
    (image,) = (value for value in graph.input if value.name not in known)
    image.type.tensor_type.shape.dim[0].dim_param = "batch"
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")
    first = helper.make_tensor("first", onnx.TensorProto.INT64, [1], [0])
    graph.initializer.append(first)
    nodes = [
        helper.make_node("Shape", [image.name], [SHAPE]),
        helper.make_node("Gather", [SHAPE, "first"], ["dynamic_batch"]),
    ]
    for node in graph.node:
        if node.op_type == "Reshape":
            kept = numpy_helper.to_array(known[node.input[1]]).copy()
            kept[0] = 0
            known[node.input[1]].CopyFrom(numpy_helper.from_array(kept, node.input[1]))
        for place, name in enumerate(node.input if node.op_type == "Concat" else ()):
            if name in known:
                tail = numpy_helper.from_array(
                    np.array(known[name].dims[1:], "int64"), f"{name}_tail"
                )
                graph.initializer.append(tail)
                nodes += [
                    helper.make_node(
                        "Concat", ["dynamic_batch", tail.name], [f"{name}_sizes"], axis=0
                    ),
                    helper.make_node("Expand", [name, f"{name}_sizes"], [f"{name}_all"]),
                ]
                node.input[place] = f"{name}_all"
        nodes.append(node)
    kept_nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept_nodes)
    return model


def _free_the_length(graph: onnx.GraphProto) -> None:
    """Have a text model's positions, masks and reshapes follow the shape of its first input."""
    known = {tensor.name: tensor for tensor in graph.initializer}
    ids, mask = (value.name for value in graph.input if value.name not in known)
    added: list[onnx.NodeProto] = [helper.make_node("Shape", [ids], [SHAPE])]

    def constant(name: str, values: list[Any]) -> str:
        name = f"dynamic_{name}"
        if name not in known:
            known[name] = numpy_helper.from_array(np.array(values, "int64"), name)
            graph.initializer.append(known[name])
        return name

    for axis, name in enumerate(("batch", "seq")):
        index = constant(f"axis_{axis}", [axis])
        added.append(helper.make_node("Gather", [SHAPE, index], [f"dynamic_{name}"]))
    positions = constant("positions", [list(range(512))])
    first, along = constant("zero", [0]), constant("one", [1])
    bounds = [positions, first, "dynamic_seq", along]
    added.append(helper.make_node("Slice", bounds, ["dynamic_position"]))
    zeros = helper.make_tensor("zeros", onnx.TensorProto.INT64, [1], [0])
    added.append(helper.make_node("ConstantOfShape", [SHAPE], ["dynamic_types"], value=zeros))
    kept = []
    for node in graph.node:
        operands = list(node.input)
        if node.op_type == "GatherElements":
            continue
        if node.op_type == "Cast" and operands == [mask]:
            axes = constant("mask_axes", [1, 2])
            added.append(helper.make_node("Cast", [mask], ["dynamic_bits"], to=9))
            added.append(helper.make_node("Unsqueeze", ["dynamic_bits", axes], ["dynamic_mask"]))
            continue
        if node.op_type in ("GatherND", "And"):
            continue
        for place, operand in enumerate(operands):
            node.input[place] = _REPLACED.get(operand, operand)
        if node.op_type == "Reshape":
            shape = numpy_helper.to_array(known[node.input[1]]).tolist()
            tail = [constant(f"extent_{extent}", [extent]) for extent in shape[2:]]
            wanted = f"{node.input[1]}_dynamic"
            if not any(wanted in each.output for each in added):
                parts = ["dynamic_batch", "dynamic_seq", *tail]
                added.append(helper.make_node("Concat", parts, [wanted], axis=0))
            node.input[1] = wanted
        kept.append(node)
    del graph.node[:]
    graph.node.extend([*added, *kept])
