"""Parts of an ONNX model: what Baton builds, and what is left to onnxruntime."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from tvm import relax, tirx

from compiler.errors import FrontendError, UnsupportedOperatorError
from compiler.ir.constants import static_shape
from compiler.relay.frontend.onnx.graph import GraphImporter
from compiler.relay.frontend.onnx.model import load_model, resolve_inputs, resolve_opsets
from compiler.relay.frontend.onnx.node import Scope, describe
from compiler.relay.frontend.onnx.node_order import names_read

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

    def rejected(self, types: _Types) -> dict[int, str]:
        """Index of each node of the graph that can't be imported, and why."""
        graph = self.model.proto.graph
        scope = dict(types.variables(value.name for value in graph.input))
        arguments = list(scope.values())
        for tensor in graph.initializer:
            with suppress(UnsupportedOperatorError):  # its readers are rejected
                self._add_initializer(tensor.name, self.model.array(tensor), scope, False)
        for name, array in self._dense(graph.sparse_initializer):
            self._add_initializer(name, array, scope, False)
        reasons: dict[int, str] = {}
        try:
            with self.builder.function("main", params=arguments):
                self._convert_nodes(graph, scope, types, reasons)
                self.builder.emit_func_output(self.builder.emit(relax.Tuple([])))
        except Exception:
            self.builder._end_block()  # else the builder prints a warning when it goes
            raise
        return _with_containers(graph, scope, reasons)

    def _convert_nodes(
        self, graph: onnx.GraphProto, scope: Scope, types: _Types, reasons: dict[int, str]
    ) -> None:
        weights = {tensor.name for tensor in graph.initializer}
        known = weights | {value.name for value in graph.input}
        for index, node in enumerate(graph.node):
            known.update(filter(None, node.output))
            unknown = [name for name in names_read(node) if name in known and name not in scope]
            try:
                if unknown:
                    what = describe(node, self.opsets.get(node.domain))
                    raise UnsupportedOperatorError(
                        f"{what}: the rank or element type of {min(unknown)!r} is unknown, or none "
                        "of Baton's"
                    )
                self._check_operators(onnx.GraphProto(node=[node]))
                self._convert_node(node, scope, self.opsets, from_model=True)
            except UnsupportedOperatorError as error:
                reasons[index] = str(error)
                for name in node.output:
                    scope.pop(name, None)
                scope.update(types.variables(node.output))
            else:
                types.learn((name, scope[name]) for name in node.output if name)


class _Types:
    """Types of a model's values, as onnxruntime infers them."""

    def __init__(self, model: onnx.ModelProto):
        import onnxruntime

        shown = onnx.ModelProto()
        shown.CopyFrom(model)
        for value in shown.graph.output:  # names of extents that the inputs give
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")
        given = {value.name for value in model.graph.output}
        made = dict.fromkeys(name for node in model.graph.node for name in node.output)
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
        self._symbols: dict[str, tirx.Var] = {}

    def info(self, name: str) -> onnx.ValueInfoProto:
        """The type of a value that one part hands to another.

        Raises UnsupportedOperatorError: onnxruntime's Python interface can't take or return it.
        """
        info = self.infos[name]
        if info.type.tensor_type.elem_type in _NOT_HANDED:
            dtype = onnx.helper.tensor_dtype_to_string(info.type.tensor_type.elem_type)
            raise UnsupportedOperatorError(
                f"{name!r}, which onnxruntime hands to another part of the model, is of {dtype}; "
                "numpy has no such type"
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
        """Variables for the values of these names whose dtype and rank are known."""
        for name in filter(None, names):
            try:
                entry = resolve_inputs(onnx.GraphProto(input=[self.infos[name]]), {}, {})[0]
            except FrontendError:
                continue
            shape = [
                self._symbols.setdefault(extent, tirx.Var(extent, "int64"))
                if isinstance(extent, str)
                else extent
                for extent in entry.shape
            ]
            yield name, relax.Var(name, relax.TensorType(shape, entry.dtype))


_NOT_HANDED = {
    dtype
    for dtype in DTYPES.values()
    if np.dtype(onnx.helper.tensor_dtype_to_np_dtype(dtype)).kind == "V"
}
"""Element types that are not numpy's own."""


def _info(value: Any) -> onnx.ValueInfoProto:
    """The type of an output of an onnxruntime session; only a name where it has no known one."""
    kind, _, dtype = value.type.removesuffix(")").rpartition("tensor(")
    if f"tensor({dtype.rstrip(')')})" not in DTYPES:
        return onnx.ValueInfoProto(name=value.name)
    elem_type = DTYPES[f"tensor({dtype.rstrip(')')})"]
    if kind:
        made = onnx.helper.make_tensor_type_proto(elem_type, None)
        for container in reversed(kind.rstrip("(").split("(")):
            make = onnx.helper.make_sequence_type_proto
            made = (make if container == "seq" else onnx.helper.make_optional_type_proto)(made)
        return onnx.helper.make_value_info(value.name, made)
    # onnxruntime has no extents for scalars and for what it knows nothing of.
    return onnx.helper.make_tensor_value_info(value.name, elem_type, list(value.shape) or None)


def _with_containers(
    graph: onnx.GraphProto, scope: Scope, reasons: Mapping[int, str]
) -> dict[int, str]:
    """Add the nodes that make or read a sequence or optional value that onnxruntime also needs.

    Such values stay in one engine.
    """
    found = dict(reasons)
    outputs = {value.name for value in graph.output}
    users: dict[str, set[int]] = {}
    for index, node in enumerate(graph.node):
        for name in {*names_read(node), *filter(None, node.output)}:
            users.setdefault(name, set()).add(index)
    held = [name for name in users if name in scope and not _is_handed(scope[name])]
    pending = True
    while pending:
        pending = False
        for name in held:
            missing = users[name].difference(found)
            if missing and (name in outputs or len(missing) < len(users[name])):
                found.update(dict.fromkeys(missing, f"{name!r} is not a NumPy array"))
                pending = True
    return found


def _is_handed(value: Any) -> bool:
    """Whether a value can go from Baton to onnxruntime, as a tensor of numpy's types."""
    if not isinstance(value, relax.Expr) or isinstance(value.ty, relax.TupleType):
        return False
    ty = value.ty
    return not isinstance(ty, relax.TensorType) or np.dtype(str(ty.dtype)).kind != "V"


def split(model: onnx.ModelProto, shapes: Mapping[str, tuple[int | str | None, ...]]) -> list[Part]:
    """Parts of a model in an order in which they can run.

    `model`: with all its weights. `shapes`: shape of every input; strings are names of dynamic
    extents, and None is an unnamed one.
    Raises ImportError: onnxruntime is not installed. Raises UnsupportedOperatorError: onnxruntime
    rejects the model with these shapes.
    """
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    for value in whole.graph.input:
        if value.name in shapes and value.type.HasField("tensor_type"):
            del value.type.tensor_type.shape.dim[:]
            for extent in shapes[value.name]:
                is_known = isinstance(extent, int)
                value.type.tensor_type.shape.dim.add(
                    **{"dim_value" if is_known else "dim_param": extent or ""}
                )
    loaded = load_model(whole)
    whole = loaded.proto
    _remove_dead_nodes(whole.graph)
    types = _Types(whole)
    reasons = _Probe(loaded, resolve_opsets(whole, None), True).rejected(types)
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
            live.update(names_read(node))
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
        sources = [made[name] for name in names_read(node) if name in made]
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
            wanted.update((made - own).intersection(names_read(graph.node[index])))
    return wanted


def _piece(
    whole: onnx.ModelProto, nodes: list[int], wanted: set[str], types: _Types
) -> onnx.ModelProto:
    """A model of some nodes."""
    graph = whole.graph
    chosen = [graph.node[index] for index in nodes]
    read = {name for node in chosen for name in names_read(node)}
    made = {name for node in chosen for name in node.output}
    constants = [
        node
        for node in graph.node
        if node.op_type == "Constant" and read & set(node.output) and not made & set(node.output)
    ]
    made.update(name for node in constants for name in node.output)
    weights = [tensor for tensor in graph.initializer if tensor.name in read]
    sparse = [tensor for tensor in graph.sparse_initializer if tensor.values.name in read]
    known = made | {tensor.name for tensor in weights}
    known.update(tensor.values.name for tensor in sparse)
    outside = {value.name for value in graph.input} | (wanted - known)
    piece = onnx.helper.make_graph(
        [*constants, *chosen],
        graph.name,
        [types.info(name) for name in sorted(read & outside - known)],
        [types.info(name) for node in chosen for name in node.output if name in wanted],
        weights,
        sparse_initializer=sparse,
    )
    return onnx.helper.make_model(
        piece,
        opset_imports=whole.opset_import,
        functions=whole.functions,
        ir_version=whole.ir_version,
    )
