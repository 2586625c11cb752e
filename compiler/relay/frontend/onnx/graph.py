"""Conversion of an ONNX graph, node by node, into the Relax function `main`."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import onnx
import tvm
import tvm_ffi
from onnx import AttributeProto
from tvm import relax, tirx
from tvm.ir import Span
from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map, onnx_input

from compiler.errors import FrontendError, ImportLimitError, UnsupportedOperatorError
from compiler.ir.constants import constant, static_shape
from compiler.ir.dynamic_shape import as_extent, is_natural, simplified, with_bounds
from compiler.ir.op_dialect import RELAX
from compiler.ir.op_facts import OpFacts, facts_in_onnx, facts_of
from compiler.ir.rewrite import operator_name
from compiler.ir.spans import with_sources, with_span
from compiler.relay.adt_eval import only_needed
from compiler.relay.op import lookup
from compiler.relay.op.shapes import broadcast_extents, same_extent
from compiler.runtime.metadata import OUTPUT_NAMES
from compiler.tvm_workarounds.block_builder import BlockBuilder

from ..error_text import reason_of
from ..import_limits import MAX_TENSOR_BYTES, Budget, ImportLimits
from . import extent_quotients
from . import shape_expr as symbolic
from .evaluate import BROADCASTING, FOLDABLE, LARGEST, OLDEST_FORM, broadcast_size, evaluate
from .functions import default_attributes, function_body, has_function, optional_attributes
from .model import InputType, Model, dense_array, refuse_narrow, tensor_array, tensor_dtype
from .node import Node, Scope, constant_value, dtype_of
from .node_names import describe, named_nodes
from .old_opsets import in_form_of_opset_7
from .ops import CONVERTERS, PREFER_FUNCTION
from .ops.microsoft import REFUSED
from .parameters import Parameters
from .validation import check_names, validate

_ASK_ONNX = "onnx.checker.check_model(model, full_check=True) says whether the model is right"

logger = logging.getLogger("baton.relay")

Converter = Callable[[Node], Any]

SEQUENCE_VALUED = frozenset(
    [
        "Identity",
        "Optional",
        "OptionalGetElement",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "ConcatFromSequence",
        "SplitToSequence",
    ]
)
"""Operators whose tuple is the value of their one output."""


_WITH_BODIES = frozenset(["If", "Loop", "Scan", "SequenceMap"])
"""Operators with graphs in their attributes."""


class _Attributes(dict[str, Any]):
    """Attributes of a node that record which of them are read."""

    def __init__(self, values: Mapping[str, Any]):
        super().__init__(values)
        self.read_names: set[str] = set()

    def __contains__(self, name: object) -> bool:
        self.read_names.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read_names.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self.read_names.add(name)
        return super().__getitem__(name)


class GraphImporter:
    """One import of one model.

    A node is converted by the first of these that has it: numpy if all its inputs are constants,
    the caller's own `converters` (by domain and operator), the model's own function, the converters
    of `ops` (one that returns None leaves the node to the rest), TVM's own converters, the function
    that ONNX defines the operator by. `opsets` are versions by domain, "" being ONNX's own; without
    `freeze_params` weights become parameters of `main`; `spans` are of inputs and weights.
    """

    def __init__(
        self,
        model: Model,
        opsets: dict[str, int],
        freeze_params: bool,
        converters: Mapping[tuple[str, str], Converter] | None = None,
        spans: Mapping[str, Span] | None = None,
        limits: ImportLimits | None = None,
    ):
        self.model = model
        self.opsets = opsets
        self.freeze_params = freeze_params
        self.builder = BlockBuilder()
        self.functions = {(fn.domain, fn.name): fn for fn in model.proto.functions}
        self.parameters = Parameters()
        self._stock = _get_convert_map()
        self._own = dict(converters or {})
        self.symbolic: dict[relax.Expr, np.ndarray] = {}
        self.partly_known: dict[relax.Expr, np.ndarray] = {}
        self.quotients: dict[relax.Expr, np.ndarray] = {}
        self.bounds: dict[str, int] = {}
        self.input_symbols: set[str] = set()
        self._extents: dict[int, tirx.Expr] = {}  # of tensors outside branches, by their hash
        self.valid_nodes: set[tuple[Any, ...]] = set()
        self._sources: dict[relax.Var, str] = {}
        self._spans = dict(spans or {})
        self.budget = Budget(limits or ImportLimits())
        self._nesting = 0

    def run(
        self, inputs: Sequence[InputType]
    ) -> tuple[tvm.IRModule, dict[str, tvm.runtime.Tensor]]:
        """Convert the model; returns the module and the values of its parameters."""
        with self.parameters:
            return self._run(inputs)

    def _run(
        self, inputs: Sequence[InputType]
    ) -> tuple[tvm.IRModule, dict[str, tvm.runtime.Tensor]]:
        graph = self.model.proto.graph
        self._check_operators(graph)
        for each in (graph, *self.functions.values()):
            check_names(each)
        scope: Scope = _variables(inputs, self._spans)
        self.input_symbols = {
            each for entry in inputs for each in entry.shape if isinstance(each, str)
        }
        variables = list(scope.values())
        scope.update(_containers(graph, inputs, scope))
        self._add_initializers(graph, scope, self.model.array, not self.freeze_params)
        variables += self.parameters.variables()
        try:
            with self.builder.function("main", params=variables):
                # Only outside of a dataflow block may an If stand, and the body of a loop begin.
                branches = any(node.op_type in _WITH_BODIES for node in self._nodes(graph))
                with nullcontext() if branches else self.builder.dataflow():
                    outputs = self.convert_graph(graph, scope)
                    result = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
                    emit = self.builder.emit if branches else self.builder.emit_output
                    result = emit(result)
                self.builder.emit_func_output(result)
        except Exception:
            self.builder._end_block()  # else the builder prints a warning when it goes
            raise
        # Loop bodies that were traced before the types of the states agreed are left out.
        module = only_needed(self.builder.get(), "main")
        module["main"] = with_sources(module["main"], self._sources)
        if branches:
            module = relax.transform.ConvertToDataflow(min_size=1)(module)
        names = [value.name for value in graph.output]
        attrs = {"num_input": len(inputs), OUTPUT_NAMES: names}
        module["main"] = module["main"].with_attrs(attrs)
        module = with_bounds(module, self.bounds)
        return module, {name: self.parameters[name][1] for name in self.parameters}

    def convert_graph(self, graph: onnx.GraphProto, scope: Scope) -> list[relax.Expr]:
        """Convert the nodes of `graph`, whose initializers are in `scope`; returns its outputs."""
        for node, name in named_nodes(graph):
            self._convert_node(node, scope, self.opsets, from_model=True)
            self._note_source(node, name, scope)
        return [self._output(value.name, scope) for value in graph.output]

    def _note_source(self, node: onnx.NodeProto, name: str, scope: Scope) -> None:
        """Note which node of the model its outputs came from."""
        for output in node.output:
            value = scope.get(output)
            for part in value.fields if isinstance(value, relax.Tuple) else [value]:
                if isinstance(part, relax.Var):
                    self._sources.setdefault(part, name)

    def convert_node(
        self, node: onnx.NodeProto, scope: Scope, opset: int | None = None
    ) -> list[Any]:
        """Convert a made-up node, of the model's opsets or `opset`; `scope` gets its outputs."""
        self._convert_node(node, scope, self.opsets if opset is None else {"": opset})
        return [scope[name] for name in node.output]

    def convert_subgraph(
        self, graph: onnx.GraphProto, arguments: Sequence[relax.Expr], scope: Scope
    ) -> list[relax.Expr]:
        """Convert a graph that is an attribute; it sees `scope` and binds its own inputs."""
        inner = dict(scope)
        for tensor in graph.initializer:
            self.budget.add_bytes(tensor.ByteSize(), f"the initializer {tensor.name!r}")
        self._add_initializers(graph, inner, tensor_array, as_parameters=False)
        inner.update(zip((value.name for value in graph.input), arguments))
        self._nesting += 1
        try:
            return self.convert_graph(graph, inner)
        finally:
            self._nesting -= 1

    def convert_branch(self, graph: onnx.GraphProto, scope: Scope) -> relax.SeqExpr:
        """Convert a graph that is an attribute and has no inputs, bindings and all, to a tuple."""
        self.builder._begin_binding_block()
        try:
            outputs = self.convert_subgraph(graph, [], scope)
            result = self.builder.emit(relax.Tuple(outputs))
        finally:
            block = self.builder._end_block()
        return relax.SeqExpr([block], result)

    def _nodes(self, graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
        """All nodes of a graph and of the model's functions."""
        yield from _all_nodes(graph)
        for function in self.functions.values():
            yield from _all_nodes(function)

    def _output(self, name: str, scope: Scope) -> relax.Expr:
        value = scope.get(name)
        if not isinstance(value, relax.Expr):
            raise FrontendError(f"no node of the model makes its output {name!r}")
        if isinstance(value.ty, relax.ShapeType):
            value = self.builder.emit(relax.op.shape_to_tensor(value))
        elif tvm.ir.is_prim_expr(value):
            array = constant_value(value)
            if array is None:
                raise UnsupportedOperatorError(f"output {name!r} is a symbolic extent")
            value = constant(array)
        return value

    def _add_initializers(
        self,
        graph: onnx.GraphProto,
        scope: Scope,
        values: Callable[[onnx.TensorProto], np.ndarray],
        as_parameters: bool,
    ) -> None:
        read_now = _read_while_importing(graph)
        arrays = ((tensor.name, values(tensor)) for tensor in graph.initializer)
        for name, array in itertools.chain(arrays, self._dense(graph.sparse_initializer)):
            self._add_initializer(name, array, scope, as_parameters and name not in read_now)

    def _add_initializer(
        self, name: str, array: np.ndarray, scope: Scope, as_parameter: bool
    ) -> None:
        if array.dtype.hasobject:
            raise UnsupportedOperatorError(f"initializer {name!r} is a tensor of strings")
        refuse_narrow(str(array.dtype), f"initializer {name!r}")
        if as_parameter and array.size > 1 and array.dtype not in (np.int64, np.int32, np.bool_):
            ty = relax.TensorType(array.shape, str(array.dtype))
            scope[name] = relax.Var(name, ty, self._spans.get(name))
            self.parameters.copy_of(array, scope[name])
        else:
            scope[name] = constant(array)
            if name in self._spans:
                scope[name] = with_span(scope[name], self._spans[name])

    def _dense(self, tensors: Iterable[onnx.SparseTensorProto]) -> Iterator[tuple[str, np.ndarray]]:
        """Names and values of sparse tensors, whose dimensions count as folded bytes."""
        for sparse in tensors:
            name = sparse.values.name
            dtype = tensor_dtype(sparse.values.data_type, f"sparse tensor {name!r}")
            size = math.prod(sparse.dims) * np.dtype(dtype).itemsize
            self.budget.add_bytes(size, f"the sparse tensor {name!r}")
            yield name, dense_array(sparse)

    def _check_operators(self, graph: onnx.GraphProto) -> None:
        """Raise for the operators that nothing can convert, before any work is done."""
        missing: dict[tuple[str, str], onnx.NodeProto] = {}
        for node in _all_nodes(graph):
            if isinstance(node.op_type, bytes) or isinstance(node.domain, bytes):
                raise FrontendError(f"the operator {node.op_type!r} is not valid UTF-8")
            if not self._is_known(node):
                missing.setdefault((node.domain, node.op_type), node)
        if missing:
            nodes = [
                describe(node, self.opsets.get(node.domain))
                + (f" ({REFUSED[key]})" if key in REFUSED else "")
                for key, node in missing.items()
            ]
            raise UnsupportedOperatorError(f"not supported: {'; '.join(nodes)}")

    def _is_known(self, node: onnx.NodeProto) -> bool:
        domain = _domain(node)
        return (
            (domain, node.op_type) in self._own
            or (domain, node.op_type) in self.functions
            or (domain, node.op_type) in CONVERTERS
            or (domain == "" and node.op_type in self._stock)
            or _declared(domain, node.op_type).name != ""
            or (domain in self.opsets and has_function(node, domain, self.opsets[domain]))
        )

    def _convert_node(
        self, proto: onnx.NodeProto, scope: Scope, opsets: dict[str, int], from_model: bool = False
    ) -> None:
        """Convert a node; validate it against its schema first if it comes from the model."""
        domain = _domain(proto)
        opset = opsets.get(domain, 1)
        self.budget.add_node(describe(proto, opset))
        missing = [name for name in proto.input if name and name not in scope]
        if missing:
            raise FrontendError(
                f"{describe(proto, opset)} reads {missing[0]!r}, which no node before it makes"
            )
        inputs = [scope[name] if name else None for name in proto.input]
        node = Node(proto, opset, inputs, _Attributes(_attributes(proto)), self, scope)
        try:
            validate(node, domain, opsets, from_model, self._has_schema(proto, domain))
            if domain == "" and opset < OLDEST_FORM:
                node = in_form_of_opset_7(node)
            outputs = self._convert(node, domain)
            if domain == "" and proto.op_type in symbolic.MOVED:
                self._note_elements(node, outputs)
            if domain == "" and proto.op_type in ("Cast", "Ceil", "Div", "Floor", "Mul"):
                self._note_quotients(outputs[0], node)
        except FrontendError:
            raise
        except Exception as error:
            # TVM reports what it can't infer or convert by errors of many classes.
            raise node.unsupported(f"{reason_of(error)}; {_ASK_ONNX}") from error
        if any(proto.output[len(outputs) :]):
            raise node.unsupported(f"only {len(outputs)} of {len(proto.output)} outputs can be had")
        for name, value in zip(proto.output, outputs):
            if isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType):
                refuse_narrow(str(value.ty.dtype), f"result {name!r} of {describe(proto, opset)}")
                _check_size(value, f"result {name!r} of {describe(proto, opset)}")
            if name:
                scope[name] = value

    def _has_schema(self, proto: onnx.NodeProto, domain: str) -> bool:
        """Whether ONNX's schema describes the node: its operator is not redefined, and it has no
        graphs, whose outer scope ONNX's inference lacks."""
        key = (domain, proto.op_type)
        return key not in self._own and key not in self.functions and key[1] not in _WITH_BODIES

    def _convert(self, node: Node, domain: str) -> list[Any]:
        folded = self._evaluate(node, domain)
        if folded is not None:
            # A Constant of the main graph is converted once: the model holds its bytes already.
            if self._nesting or node.proto.op_type != "Constant":
                size = sum(array.nbytes for array in folded)
                self.budget.add_bytes(size, describe(node.proto, node.opset))
            return [constant(array) for array in folded]
        extents = self._evaluate_on_symbols(node) if domain == "" else None
        if extents is not None:
            return [self._symbolic(node, array) for array in extents]
        key = (domain, node.proto.op_type)
        if key in self._own:
            return self._bind(node, self._own[key](node))
        if key in self.functions:
            return self._call_function(node, self.functions[key])
        if key in CONVERTERS:
            converted = CONVERTERS[key](node)
            if converted is not None:
                if domain.startswith("com.microsoft"):
                    _reject_unread_attributes(node)
                return self._bind(node, converted)
        if domain != "" or node.proto.op_type not in self._stock:
            facts = _declared(*key)
            if facts.name:
                return self._bind(node, facts.call(node.inputs))
        if has_function(node.proto, domain, node.opset) and (
            key in PREFER_FUNCTION or domain != "" or node.proto.op_type not in self._stock
        ):
            return self._call_function(node, function_body(node, domain))
        return self._bind(node, self._convert_with_tvm(node))

    def _evaluate(self, node: Node, domain: str) -> list[np.ndarray] | None:
        """Outputs of a node that depends on constants and static shapes only; else None."""
        if domain != "":
            return None
        if node.proto.op_type == "Constant":
            if "sparse_value" in node.attrs:
                return [array for _, array in self._dense([node.attrs["sparse_value"]])]
            return [_constant_attribute(node)]
        if node.proto.op_type not in FOLDABLE or not all(map(_is_small_constant, node.inputs)):
            return None
        values = [constant_value(value) for value in node.inputs]
        return evaluate(node.proto, node.opset, values)

    def _evaluate_on_symbols(self, node: Node) -> list[np.ndarray] | None:
        """Outputs of a node that depends on shapes with symbols only; else None."""
        kind = node.proto.op_type
        if kind in ("Shape", "Size") and node.get(0) is not None:
            shape = symbolic.shape_of(node[0])
            if shape is None:
                return None
            if kind == "Size":
                return [np.array(simplified(math.prod(shape)), object)]
            return [np.array(shape[node.attr("start", 0) : node.attr("end")], object)]
        is_quotient = bool(node.inputs) and node.get(0) in self.quotients
        if kind == "Cast" and is_quotient and symbolic.dtype_of_result(node) in ("int32", "int64"):
            truncated = extent_quotients.truncated(node)
            if truncated is not None:
                return [truncated]
        operands = [node.extents_in(index) for index in range(len(node.inputs))]
        for value, operand in zip(node.inputs, operands):
            if value is not None and operand is None:
                return None
        if not any(each is not None and symbolic.is_symbolic(each) for each in operands):
            return None
        return symbolic.evaluate(node, operands)

    def _note_elements(self, node: Node, outputs: Sequence[Any]) -> None:
        """Remember the known elements of an integer tensor that is computed at run time."""
        operands = [node.elements(index) for index in range(len(node.inputs))]
        computed = {
            index
            for index, operand in enumerate(operands)
            if operand is not None and any(element is None for element in operand.flat)
        }
        is_readable = operands[0] is not None and computed <= {*symbolic.MOVED[node.proto.op_type]}
        if not computed or not is_readable:
            return
        results = symbolic.evaluate(node, operands) or []
        for output, elements in zip(outputs, results):
            if any(each is not None for each in elements.flat):
                self.partly_known[output] = elements

    def _note_quotients(self, output: Any, node: Node) -> None:
        """Remember the extents of which a small tensor of floats is computed."""
        if isinstance(output, relax.Var) and dtype_of(output) in ("float32", "float64"):
            quotients = extent_quotients.quotients_of(node)
            if quotients is not None:
                self.quotients[output] = quotients

    def _symbolic(self, node: Node, values: np.ndarray) -> relax.Expr:
        """Extents as a tensor, whose elements converters can ask for again."""
        dtype = symbolic.dtype_of_result(node)
        if not symbolic.is_symbolic(values):
            is_bool = values.size > 0 and all(isinstance(each, bool) for each in values.flat)
            return constant(values.astype("bool" if is_bool else dtype))
        flat = relax.ShapeExpr([as_extent(each) for each in values.flat])
        tensor = self.builder.emit(relax.op.shape_to_tensor(flat))
        if values.ndim != 1:
            tensor = self.builder.emit(relax.op.reshape(tensor, values.shape))
        if dtype != "int64":
            tensor = self.builder.emit(relax.op.astype(tensor, dtype))
        self.symbolic[tensor] = values
        return tensor

    def _convert_with_tvm(self, node: Node) -> Any:
        """Convert the node with TVM's converter; reject attributes that it does not read."""
        inputs = onnx_input()
        # TVM's converters fold constants of any size; variables they leave alone.
        is_large = node.proto.op_type in BROADCASTING and _makes_large_constant(node.inputs)
        for value in node.inputs:
            inputs.append(self.builder.emit(value) if is_large else value)
        attrs = _Attributes(node.attrs)
        attrs["tvm_custom"] = {"name": node.proto.name, "num_outputs": len(node.proto.output)}
        converter = self._stock[node.proto.op_type].get_converter(node.opset)
        result = converter(self.builder, inputs, attrs, [node.scope, self.parameters])
        for name, default in optional_attributes(node, _domain(node.proto)).items():
            if name in node.attrs and name not in attrs.read_names and node.attrs[name] != default:
                raise node.unsupported(f"the attribute {name}={node.attr(name)!r} is not supported")
        return result

    def _call_function(self, node: Node, function: onnx.FunctionProto) -> list[Any]:
        """Convert the body of a function in place of the node that calls it."""
        scope: Scope = {name: None for name in function.input}
        scope.update(zip(function.input, node.inputs))
        attributes = default_attributes(node, _domain(node.proto))
        attributes.update({entry.name: entry for entry in function.attribute_proto})
        attributes.update({entry.name: entry for entry in node.proto.attribute})
        opsets = {**self.opsets}
        opsets.update({_domain(entry): entry.version for entry in function.opset_import})
        self._nesting += 1
        try:
            for inner in function.node:
                self._convert_node(_with_attributes(inner, attributes, scope), scope, opsets)
        finally:
            self._nesting -= 1
        wanted = function.output[: len(node.proto.output)]
        return [scope[name] if out else None for name, out in zip(wanted, node.proto.output)]

    def _bind(self, node: Node, result: Any) -> list[Any]:
        """Bind what a converter returned to variables, one for each output of the node."""
        single = node.proto.op_type in SEQUENCE_VALUED
        if isinstance(result, (list, tuple)):
            return [self._bind_one(node, item, i) for i, item in enumerate(result)]
        if single or not isinstance(result, relax.Expr):
            return [self._bind_one(node, result, 0)]
        if isinstance(result, relax.Tuple):
            used = result.fields[: len(node.proto.output)]
            return [self._bind_one(node, item, i) for i, item in enumerate(used)]
        value = self._bind_one(node, result, 0)
        if isinstance(value.ty, relax.TupleType):
            fields = range(min(len(value.ty.fields), len(node.proto.output)))
            return [self._bind_one(node, relax.TupleGetItem(value, i), i) for i in fields]
        return [value]

    def _bind_one(self, node: Node, value: Any, index: int) -> Any:
        if isinstance(value, relax.SeqExpr):
            value = self._bind_sequence(value)
        leaves = (relax.Var, tvm.ir.GenericConst, relax.ShapeExpr, relax.Tuple)
        if not isinstance(value, relax.Expr) or isinstance(value, leaves):
            return self.builder.normalize(value) if isinstance(value, relax.Tuple) else value
        if tvm.ir.is_prim_expr(value):
            array = constant_value(value)
            return value if array is None else constant(array)
        names = node.proto.output
        value = self._broadcast(self.builder.normalize(value))
        bound = self.with_extents(
            self.builder.emit(value, names[index] if index < len(names) else "")
        )
        if node.proto.op_type in ("Conv", "MaxPool", "AveragePool"):
            self._note_windows(bound)
        return bound

    def _broadcast(self, value: relax.Expr) -> relax.Expr:
        """Broadcast the operands of a call where TVM does not infer their joint shape."""
        if not isinstance(value.ty, relax.TensorType) or value.ty.shape is not None:
            return value
        shapes = symbolic.broadcast_shapes(value)
        if shapes is None:
            return value
        operands = map(broadcast_extents, value.args, shapes)
        return RELAX.again(value, [self.builder.emit(each) for each in operands])

    def with_extents(self, value: relax.Var) -> relax.Var:
        """Name the unknown extents of a value, because later operators need them.

        An extent max(n, 0), such as a slice's, is n if another tensor has the extent n.
        """
        ty = value.ty
        if not isinstance(ty, relax.TensorType) or ty.ndim < 1:
            return value
        if isinstance(ty.shape, relax.ShapeExpr):
            extents = [self._normal_extent(extent) for extent in ty.shape.values]
            if all(map(tvm_ffi.structural_equal, extents, ty.shape.values)):
                return value
            return self.builder.match_cast(value, relax.TensorType(extents, ty.dtype))
        if ty.shape is not None:
            return value
        known = symbolic.result_extents(self.builder.lookup_binding(value))
        extents = symbolic.named_extents(known or [None] * ty.ndim)
        return self.builder.match_cast(value, relax.TensorType(extents, ty.dtype))

    def _normal_extent(self, extent: Any) -> Any:
        """Simplify an extent and note it; max(n, 0) becomes n if a tensor has the extent n."""
        if isinstance(extent, tirx.Max) and same_extent(as_extent(0), extent.b):
            known = self._extents.get(tvm_ffi.structural_hash(extent.a))
            return extent if known is None or not same_extent(known, extent.a) else known
        if isinstance(extent, tirx.IntImm | tirx.Var):
            return extent
        known = self._extents.get(tvm_ffi.structural_hash(extent))
        if known is not None and tvm_ffi.structural_equal(known, extent):
            return known
        simple = as_extent(simplified(extent))
        extent = (
            extent if isinstance(simple, tirx.Var) else simple
        )  # a cast to a lone Var would define it
        if not self._nesting:
            self._extents[tvm_ffi.structural_hash(extent)] = extent
        return extent

    def _note_windows(self, value: relax.Expr) -> None:
        """Note lower bounds of extents: an input smaller than a window is an error at run time."""
        call = self.builder.lookup_binding(value)
        while operator_name(call) in ("add", "squeeze", "reshape"):  # with a bias
            call = self.builder.lookup_binding(call.args[0])
        shapes = None if self._nesting else facts_of(call).shapes
        for need in shapes(call) if shapes is not None else ():
            extents = symbolic.shape_of(call.args[need.operand]) if need.is_window else None
            rest = 0 if extents is None else simplified(extents[need.axis] - need.extent)
            if not isinstance(rest, int):
                self._extents[tvm_ffi.structural_hash(rest)] = rest

    def is_natural(self, extent: Any) -> bool:
        """Whether a number can't be negative, as it is an extent of a tensor or plainly so."""
        if not isinstance(extent, int):
            known = self._extents.get(tvm_ffi.structural_hash(extent))
            if known is not None and same_extent(known, extent):
                return True
        return is_natural(extent)

    def _bind_sequence(self, sequence: relax.SeqExpr) -> Any:
        """Bind what is bound inside of an expression; in a dataflow block it may not stay there."""
        renamed: dict[relax.Var, relax.Expr] = {}

        def with_names(expr: relax.Expr) -> relax.Expr:
            return tvm_ffi.structural_map(expr, (relax.Var, lambda var: renamed.get(var, var)))

        for binding in [each for block in sequence.blocks for each in block.bindings]:
            value = with_names(binding.value)
            if isinstance(binding, relax.MatchCast):
                renamed[binding.var] = self.builder.match_cast(value, binding.ty)
            else:
                renamed[binding.var] = self.builder.emit(value)
        return with_names(sequence.body)


def _variables(inputs: Sequence[InputType], spans: Mapping[str, Span]) -> dict[str, relax.Var]:
    """A variable for each input; extents of one name are one symbolic dimension."""
    names = {extent for entry in inputs for extent in entry.shape if isinstance(extent, str)}
    symbols = {name: tvm.tirx.Var(name, "int64") for name in sorted(names)}
    return {
        entry.name: relax.Var(
            entry.name,
            relax.TensorType(
                [symbols.get(str(extent), extent) for extent in entry.shape], entry.dtype
            ),
            spans.get(entry.name),
        )
        for entry in inputs
    }


def _containers(graph: onnx.GraphProto, inputs: Sequence[InputType], variables: Scope) -> Scope:
    """Values of inputs that are sequences or optional; None for an optional input without one."""
    found: Scope = {}
    for value in graph.input:
        parts = [variables[entry.name] for entry in inputs if entry.sequence == value.name]
        kind = value.type.WhichOneof("value")
        if parts or kind == "sequence_type":
            found[value.name] = relax.Tuple(parts)
        elif kind == "optional_type" and value.name not in variables:
            found[value.name] = None
    return found


def _reject_unread_attributes(node: Node) -> None:
    """Raise for an attribute that the converter of an operator without a schema did not read."""
    assert isinstance(node.attrs, _Attributes)
    for name in node.attrs:
        if name not in node.attrs.read_names:
            raise node.unsupported(f"the attribute {name}={node.attr(name)!r} is not supported")


def _check_size(value: relax.Expr, what: str) -> None:
    """Raise for a tensor that no machine can hold."""
    shape = static_shape(value)
    if shape is None or math.prod(shape) <= MAX_TENSOR_BYTES >> 4:  # at most 16 bytes an element
        return
    dtype = str(value.ty.dtype)
    size = math.prod(shape) * max(tvm.DataType(dtype).itemsize, 1)
    if size > MAX_TENSOR_BYTES:
        raise ImportLimitError(
            f"{what} is a tensor {list(shape)} of {dtype}, {size} bytes; no machine can hold it"
        )


def _declared(domain: str, op_type: str) -> OpFacts:
    """Facts of the operator whose record names this ONNX operator; empty facts if none does."""
    lookup.load()
    return facts_in_onnx(op_type if domain == "" else f"{domain}::{op_type}")


def _domain(proto: Any) -> str:
    return "" if proto.domain == "ai.onnx" else proto.domain


def _is_small_constant(value: relax.Expr | None) -> bool:
    """Whether a value is left out, or known and small; looks at no data."""
    if value is None:
        return True
    if isinstance(value, tvm.ir.GenericConst):
        return math.prod(static_shape(value) or ()) <= LARGEST
    return constant_value(value) is not None


def _makes_large_constant(values: Sequence[relax.Expr | None]) -> bool:
    """Whether all operands are constants that broadcast to more than `LARGEST` elements."""
    shapes = [static_shape(each) for each in values if isinstance(each, tvm.ir.GenericConst)]
    known = [shape for shape in shapes if shape is not None]
    return 0 < len(known) == len(values) and broadcast_size(*known) > LARGEST


def _read_while_importing(graph: onnx.GraphProto) -> set[str]:
    """Names of floating-point operands that decide shapes: the scales of Resize and Upsample."""
    return {
        name
        for node in _all_nodes(graph)
        if node.op_type in ("Resize", "Upsample")
        for name in node.input[1:]
    }


def _attributes(proto: onnx.NodeProto) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for entry in proto.attribute:
        value = onnx.helper.get_attribute_value(entry)
        repeated = isinstance(value, list) or entry.type in (
            AttributeProto.INTS,
            AttributeProto.FLOATS,
            AttributeProto.STRINGS,
        )
        values[entry.name] = tuple(value) if repeated else value
    if values.get("auto_pad") == b"":  # onnxruntime takes it for the default
        values["auto_pad"] = b"NOTSET"
    return values


def _with_attributes(
    proto: onnx.NodeProto, attributes: dict[str, AttributeProto], scope: Scope
) -> onnx.NodeProto:
    """A function body's node with the caller's attributes, less what the caller leaves out."""
    node = onnx.NodeProto()
    node.CopyFrom(proto)
    del node.attribute[:]
    for entry in proto.attribute:
        if not entry.ref_attr_name:
            node.attribute.append(entry)
        elif entry.ref_attr_name in attributes:
            node.attribute.append(attributes[entry.ref_attr_name])
            node.attribute[-1].name = entry.name
    for i, name in enumerate(node.input):
        if name and name in scope and scope[name] is None:
            node.input[i] = ""
    return node


def _constant_attribute(node: Node) -> np.ndarray:
    """Value of a Constant node, in whichever attribute it is."""
    attrs = node.attrs
    if "value" in attrs:
        return tensor_array(attrs["value"])
    for name, dtype in (("value_int", "int64"), ("value_ints", "int64")):
        if name in attrs:
            return np.array(attrs[name], dtype)
    for name, dtype in (("value_float", "float32"), ("value_floats", "float32")):
        if name in attrs:
            return np.array(attrs[name], dtype)
    raise node.unsupported("only numeric constants are supported")


def _all_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Nodes of a graph and of the graphs in their attributes."""
    nodes = []
    for node in graph.node:
        nodes.append(node)
        for entry in node.attribute:
            for inner in [entry.g] if entry.type == AttributeProto.GRAPH else entry.graphs:
                nodes.extend(_all_nodes(inner))
    return nodes
