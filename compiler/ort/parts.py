"""Parts of an ONNX model: what Baton builds, and what is left to onnxruntime."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from tvm import relax

from compiler.errors import UnsupportedOperatorError
from compiler.ir.constants import static_shape
from compiler.relay.frontend.onnx.graph import GraphImporter
from compiler.relay.frontend.onnx.model import load_model, resolve_inputs, resolve_opsets

from .values import type_name

BATON, ONNXRUNTIME = "Baton", "onnxruntime"

DTYPES = {
    type_name(onnx.helper.tensor_dtype_to_np_dtype(dtype)): dtype
    for dtype in onnx.TensorProto.DataType.values()
    if dtype not in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING)
} | {"tensor(string)": onnx.TensorProto.STRING}
"""onnxruntime's name of a type of tensors to ONNX's number of its elements' type."""


@dataclass(frozen=True)
class Part:
    """Nodes of a model that one engine runs."""

    engine: str  # `BATON` or `ONNXRUNTIME`
    model: onnx.ModelProto  # the nodes, with the weights that they read
    # Why Baton does not run its nodes, one message a node; empty for a part of Baton's
    reasons: tuple[str, ...] = ()

    @property
    def inputs(self) -> list[str]:
        """Names of the values that the part reads."""
        return [value.name for value in self.model.graph.input]

    @property
    def outputs(self) -> list[str]:
        """Names of the values that it makes for others."""
        return [value.name for value in self.model.graph.output]

    def __str__(self) -> str:
        return f"{self.engine}: {len(self.model.graph.node)} nodes"


class _Probe(GraphImporter):
    """Finds the nodes that Baton can't import; nothing is kept of what it converts."""

    def refused(self, shapes: Mapping[str, tuple[int, ...]], types: _Types) -> dict[int, str]:
        """Index of each node of the graph that can't be imported, and why."""
        graph = self.model.proto.graph
        scope: dict[str, Any] = {}
        for value in graph.input:
            variable = _variable(value, shapes)
            if variable is not None:
                scope[value.name] = variable
        arguments = list(scope.values())
        self._add_initializers(graph, scope, self.model.array, False)
        known = {value.name for value in (*graph.input, *graph.initializer)}
        reasons = {}
        with self.builder.function("main", params=arguments):
            with self.builder.dataflow():
                for index, node in enumerate(graph.node):
                    known.update(node.output)
                    unknown = [name for name in _reads(node) if name in known and name not in scope]
                    try:
                        if unknown:
                            raise UnsupportedOperatorError(f"the type of {unknown[0]!r} is unknown")
                        self._check_operators(onnx.GraphProto(node=[node]))
                        self._convert_node(node, scope, self.opsets)
                    except UnsupportedOperatorError as error:
                        reasons[index] = str(error)
                        scope.update(types.variables(node.output))
                    else:
                        types.learn((name, scope[name]) for name in node.output if name)
                result = self.builder.emit_output(relax.Tuple([]))
            self.builder.emit_func_output(result)
        return reasons


class _Types:
    """Types of a model's values, as onnxruntime infers them."""

    def __init__(self, model: onnx.ModelProto):
        import onnxruntime

        shown = onnx.ModelProto()
        shown.CopyFrom(model)
        for value in shown.graph.output:  # names of extents that the inputs give
            value.type.tensor_type.ClearField("shape")
        given = {value.name for value in model.graph.output}
        made = (name for node in model.graph.node for name in node.output)
        shown.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in made if name and name not in given
        )
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        try:
            session = onnxruntime.InferenceSession(
                shown.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its classes have no other one in common
            raise UnsupportedOperatorError(f"onnxruntime refuses it, too: {error}") from error
        self.infos = {value.name: value for value in model.graph.input}
        self.infos.update((value.name, _info(value)) for value in session.get_outputs())

    def info(self, name: str) -> onnx.ValueInfoProto:
        """The type of a value that one part hands to another.

        Raises UnsupportedOperatorError: it is not a tensor.
        """
        info = self.infos[name]
        if not info.type.HasField("tensor_type"):
            raise UnsupportedOperatorError(
                f"{name!r}, which onnxruntime hands to another part of the model, is not a tensor"
            )
        return info

    def learn(self, values: Iterable[tuple[str, Any]]) -> None:
        """Take the static types of values that Baton makes."""
        for name, value in values:
            shape = static_shape(value) if isinstance(value, relax.Expr) else None
            if shape is not None and isinstance(value.ty, relax.TensorType):
                dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(str(value.ty.dtype)))
                self.infos[name] = onnx.helper.make_tensor_value_info(name, dtype, shape)

    def variables(self, names: Iterable[str]) -> Iterator[tuple[str, relax.Var]]:
        """Variables for the values of these names whose static types are known."""
        for name in filter(None, names):
            variable = _variable(self.infos[name], {})
            if variable is not None:
                yield name, variable


def _info(value: Any) -> onnx.ValueInfoProto:
    """The type of an output of an onnxruntime session; only a name where it is not a tensor."""
    dtype = DTYPES.get(value.type)
    if dtype is None:
        return onnx.ValueInfoProto(name=value.name)
    extents = [extent if isinstance(extent, int) else None for extent in value.shape]
    # onnxruntime has no extents for scalars and for what it knows nothing of.
    return onnx.helper.make_tensor_value_info(value.name, dtype, extents or None)


def split(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> list[Part]:
    """Parts of a model in an order in which they can run.

    `model`: with all its weights. `shapes`: shape of every input.
    Raises ImportError: onnxruntime is not installed. Raises UnsupportedOperatorError: onnxruntime
    refuses the model with these shapes.
    """
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    for value in whole.graph.input:
        if value.name in shapes and value.type.HasField("tensor_type"):
            del value.type.tensor_type.shape.dim[:]
            for extent in shapes[value.name]:
                value.type.tensor_type.shape.dim.add(dim_value=extent)
    _remove_dead_nodes(whole.graph)
    types = _Types(whole)
    loaded = load_model(whole)
    reasons = _Probe(loaded, resolve_opsets(whole, None), True).refused(shapes, types)
    groups = _grouped(whole.graph, set(reasons))
    wanted = _wanted(whole.graph, groups)
    return [
        Part(
            engine,
            _piece(whole, nodes, wanted, types),
            tuple(reasons[index] for index in nodes if index in reasons),
        )
        for (_, engine), nodes in sorted(groups.items())
    ]


def _remove_dead_nodes(graph: onnx.GraphProto) -> None:
    """Remove the nodes that no output depends on."""
    live = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if live.intersection(node.output):
            live.update(_reads(node))
            kept.append(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))


def _grouped(graph: onnx.GraphProto, foreign: set[int]) -> dict[tuple[int, str], list[int]]:
    """Nodes by stage and engine; a value that changes the engine begins a stage.

    Nodes of one stage depend on nodes of it by way of their own engine only, so each group runs
    in one piece. Constants that are not outputs belong to whoever reads them.
    """
    outputs = {value.name for value in graph.output}
    made: dict[str, tuple[int, str]] = {}
    groups: dict[tuple[int, str], list[int]] = {}
    for index, node in enumerate(graph.node):
        if node.op_type == "Constant" and index not in foreign and node.output[0] not in outputs:
            continue
        engine = ONNXRUNTIME if index in foreign else BATON
        sources = [made[name] for name in _reads(node) if name in made]
        stage = max((at + (of != engine) for at, of in sources), default=0)
        groups.setdefault((stage, engine), []).append(index)
        made.update((name, (stage, engine)) for name in node.output)
    return groups


def _wanted(graph: onnx.GraphProto, groups: Mapping[Any, list[int]]) -> set[str]:
    """Names of the values that leave the group which makes them."""
    wanted = {value.name for value in graph.output}
    made = {name for node in graph.node for name in node.output}
    for nodes in groups.values():
        own = {name for index in nodes for name in graph.node[index].output}
        for index in nodes:
            wanted.update((made - own).intersection(_reads(graph.node[index])))
    return wanted


def _piece(
    whole: onnx.ModelProto, nodes: list[int], wanted: set[str], types: _Types
) -> onnx.ModelProto:
    """A model of some nodes."""
    graph = whole.graph
    chosen = [graph.node[index] for index in nodes]
    read = {name for node in chosen for name in _reads(node)}
    made = {name for node in chosen for name in node.output}
    constants = [
        node
        for node in graph.node
        if node.op_type == "Constant" and read & set(node.output) and not made & set(node.output)
    ]
    made.update(name for node in constants for name in node.output)
    weights = [tensor for tensor in graph.initializer if tensor.name in read]
    known = made | {tensor.name for tensor in weights}
    outside = {value.name for value in graph.input} | (wanted - known)
    piece = onnx.helper.make_graph(
        [*constants, *chosen],
        graph.name,
        [types.info(name) for name in sorted(read & outside - known)],
        [types.info(name) for node in chosen for name in node.output if name in wanted],
        weights,
    )
    return onnx.helper.make_model(
        piece,
        opset_imports=whole.opset_import,
        functions=whole.functions,
        ir_version=whole.ir_version,
    )


def _reads(node: onnx.NodeProto) -> list[str]:
    """Names that a node or the graphs in its attributes read, those of their own included."""
    names = [name for name in node.input if name]
    for entry in node.attribute:
        for graph in (entry.g, *entry.graphs):
            names.extend(value.name for value in graph.output)
            for inner in graph.node:
                names.extend(_reads(inner))
    return names


def _variable(
    value: onnx.ValueInfoProto, shapes: Mapping[str, tuple[int, ...]]
) -> relax.Var | None:
    """A variable of a value's type; None where the type is not a static one of Baton's."""
    alone = onnx.GraphProto(input=[value])
    given = {name: shape for name, shape in shapes.items() if name == value.name}
    try:
        entry = resolve_inputs(alone, given, {})[0]
    except ValueError:
        return None
    return relax.Var(entry.name, relax.TensorType(entry.shape, entry.dtype))
