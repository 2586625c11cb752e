"""ONNX graphs evaluated by onnxruntime or by ONNX's reference evaluator, whole or node by node."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper

from .known import WRONG_REFERENCE

Value = Any
"""An array, or a list of arrays for a sequence."""


class EvaluationError(Exception):
    """The evaluator refused the graph or raised while it ran."""


def type_of(value: Value) -> onnx.TypeProto:
    """The ONNX type of a value; of a sequence without extents, which may differ."""
    if isinstance(value, list):
        first = value[0] if value else np.zeros((), "float32")
        element = helper.np_dtype_to_tensor_dtype(first.dtype)
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(element, None))
    element = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_type_proto(element, value.shape)


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Value],
    outputs: Sequence[str],
    opset: int,
    constants: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """A model of these nodes; its outputs have no types."""
    graph = helper.make_graph(
        list(nodes),
        "fuzz",
        [helper.make_value_info(name, type_of(value)) for name, value in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [onnx.numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def session(model: onnx.ModelProto) -> Any:
    """An onnxruntime session without graph optimizations.

    Raises
    ------
    EvaluationError
        onnxruntime does not take the model.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.use_deterministic_compute = True
    try:
        return ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise EvaluationError(_line(error)) from error


def by_onnxruntime(opened: Any, feeds: Mapping[str, Value]) -> list[Value]:
    """Outputs of a session. Raises EvaluationError if it fails."""
    try:
        return [_plain(value) for value in opened.run(None, dict(feeds))]
    except Exception as error:
        raise EvaluationError(_line(error)) from error


def by_reference(model: onnx.ModelProto, feeds: Mapping[str, Value]) -> list[Value]:
    """Outputs by ONNX's reference evaluator, in the dtypes that ONNX infers: it has numpy's.

    Raises EvaluationError if it fails.
    """
    from onnx.reference import ReferenceEvaluator

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = [_plain(value) for value in ReferenceEvaluator(model).run(None, dict(feeds))]
        return [_as(value, entry.type) for value, entry in zip(found, _inferred(model))]
    except Exception as error:
        raise EvaluationError(_line(error)) from error


def _inferred(model: onnx.ModelProto) -> Sequence[onnx.ValueInfoProto]:
    return onnx.shape_inference.infer_shapes(model).graph.output


def _as(value: Value, inferred: onnx.TypeProto) -> Value:
    if inferred.WhichOneof("value") == "optional_type":
        inferred = inferred.optional_type.elem_type
        if isinstance(value, list) and inferred.WhichOneof("value") == "tensor_type":
            (value,) = value  # the reference evaluator has a list of what is there
    element = inferred.tensor_type.elem_type
    if isinstance(value, list) or not element:
        return value
    return value.astype(helper.tensor_dtype_to_np_dtype(element), copy=False)


def _plain(value: Value) -> Value:
    return [np.asarray(item) for item in value] if isinstance(value, list) else np.asarray(value)


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def free_names(node: onnx.NodeProto) -> list[str]:
    """What a node reads: its inputs, and what the graphs in its attributes take from outside."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type != AttributeProto.GRAPH:
            continue
        inner = attribute.g
        own = {value.name for value in inner.input} | {entry.name for entry in inner.initializer}
        for each in inner.node:
            names += [name for name in free_names(each) if name not in own]
            own.update(each.output)
        names += [value.name for value in inner.output if value.name not in own]
    return list(dict.fromkeys(names))


class NodeRunner:
    """Run nodes one at a time, on cached sessions.

    `reference_first` chooses the evaluator; the other one runs what that one does not implement.
    With `in_float32`, onnxruntime runs in float32 what it lacks in the dtype of the operands.
    """

    def __init__(self, opset: int, reference_first: bool = False, in_float32: bool = False):
        self.opset = opset
        self.reference_first = reference_first
        self.in_float32 = in_float32
        self._sessions: dict[Any, tuple[onnx.NodeProto, onnx.ModelProto, Any]] = {}

    def run(self, node: onnx.NodeProto, values: Mapping[str, Value]) -> dict[str, Value]:
        """Outputs of a node by name. Raises EvaluationError where neither evaluator knows them."""
        given = {name: values[name] for name in free_names(node)}
        names = [name for name in node.output if name]
        shapes = [x.shape for x in given.values() if isinstance(x, np.ndarray)]
        key = id(node), *shapes
        if key not in self._sessions:
            model = make_model([node], given, names, self.opset)
            try:
                opened = session(model)
            except EvaluationError:
                opened = None
            self._sessions[key] = node, model, opened
        _, model, opened = self._sessions[key]
        if opened is None and self.in_float32:
            return dict(zip(names, self._by_float32(node, given, names)))
        if opened is None or (self.reference_first and node.op_type not in WRONG_REFERENCE):
            try:
                return dict(zip(names, by_reference(model, given)))
            except EvaluationError:
                if opened is None:
                    raise
        try:
            return dict(zip(names, by_onnxruntime(opened, given)))
        except EvaluationError:
            padding = _of_padding(node, given)
            if padding is None:
                raise
            return {names[0]: padding}

    def _by_float32(
        self, node: onnx.NodeProto, given: Mapping[str, np.ndarray], names: Sequence[str]
    ) -> list[np.ndarray]:
        if any(isinstance(value, list) for value in given.values()):
            raise EvaluationError("a sequence")
        others = [str(x.dtype) for x in given.values() if str(x.dtype) in ("float16", "float64")]
        if not others:
            raise EvaluationError("no operand of another precision")
        single = {k: x.astype("float32") if x.dtype.kind == "f" else x for k, x in given.items()}
        results = by_onnxruntime(session(make_model([node], single, names, self.opset)), single)
        return [x.astype(others[0]) if x.dtype.kind == "f" else x for x in results]

    def run_all(
        self, model: onnx.ModelProto, feeds: Mapping[str, Value], wanted: str | None = None
    ) -> dict[str, Value]:
        """Every value of a model, or those that one needs. Raises EvaluationError."""
        known: dict[str, Value] = {**constants_of(model), **feeds}
        with quiet():
            for node in model.graph.node if wanted is None else nodes_for(model, wanted):
                known.update(self.run(node, known))
        return known


def _of_padding(node: onnx.NodeProto, given: Mapping[str, Value]) -> np.ndarray | None:
    """The result of a Conv of an image without elements: its bias, wherever windows fit.

    onnxruntime rejects an extent of 0, although ONNX defines the result.
    """
    image = given.get(node.input[0]) if node.op_type == "Conv" else None
    attributes = {entry.name: list(entry.ints) for entry in node.attribute}
    if image is None or isinstance(image, list) or image.size or "auto_pad" in attributes:
        return None
    weights, rank = np.asarray(given[node.input[1]]), image.ndim - 2
    pads = attributes.get("pads", [0] * (2 * rank))
    steps, reaches = (attributes.get(name, [1] * rank) for name in ("strides", "dilations"))
    extents = []
    for axis, width in enumerate(weights.shape[2:]):
        extent = image.shape[2 + axis]
        over = extent + pads[axis] + pads[rank + axis] - (width - 1) * reaches[axis] - 1
        if over < (0 if extent else -1):
            return None
        extents.append(over // steps[axis] + 1)
    biased = len(node.input) > 2 and node.input[2]
    bias = np.asarray(given[node.input[2]]) if biased else np.zeros(weights.shape[0], image.dtype)
    return np.broadcast_to(
        bias.reshape(-1, *[1] * rank), (image.shape[0], weights.shape[0], *extents)
    ).copy()


def nodes_for(model: onnx.ModelProto, wanted: str) -> list[onnx.NodeProto]:
    """The nodes that a value needs, in order."""
    needed, nodes = {wanted}, []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            nodes.append(node)
            needed.update(free_names(node))
    return nodes[::-1]


def constants_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Initializers by name."""
    return {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}


def opset_of(model: onnx.ModelProto) -> int:
    """Version of ONNX's own operator set."""
    return next(entry.version for entry in model.opset_import if not entry.domain)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Warnings and floating-point errors of numpy are not shown."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
