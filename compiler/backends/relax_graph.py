"""From `main` of a module to the graph that partitioner callbacks see.

Operators have Relay's names and attributes; what Relay has no operator for has Relax's, without
the prefix `relax.`. Tuples, projections and other names of a
value leave no node: inputs refer to the entries themselves. A call of a function of the module is
one node; an accepted subgraph has the operator name its strategy gave it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from tvm import relax, runtime
from tvm.ir import GenericConst, GlobalVar, Op, StringImm, Tuple
from tvm.tirx import IntImm

from compiler.errors import PartitionError
from compiler.ir import dynamic_shape
from compiler.ir.constants import leaf_types
from compiler.ir.dataflow_graph import OPERATION, RelaxFunction
from compiler.ir.op_dialect import attribute_values
from compiler.ir.spans import operand_name, source_name
from compiler.ir.unique_names import Names

from .graph import VARIABLE, Entry, Graph, Node, OutputType

_ARGUMENT_NAMES = {"relax.strided_slice": ("x", "axes", "begin", "end", "strides")}
"""Argument names that Relax does not declare itself."""


class RelaxGraph:
    """Neutral graph of a Relax `main`; PartitionError if a value in `params` does not fit."""

    def __init__(self, main: RelaxFunction, params: Mapping[str, Any] | None) -> None:
        self.graph = Graph(bounds=dynamic_shape.bounds(main.function))
        self._symbols = dynamic_shape.names(main.function)
        # the binding of each node; None for a variable
        self.binding_of: list[int | None] = []
        self._values: dict[str, np.ndarray] = {}
        self._main = main
        self._own_names = [variable.name for variable in (*main.parameters, *main.variables)]
        self._names = Names(self._own_names)
        self._used: set[str] = set()
        self._entries: dict[int, list[Entry]] = {}  # by number of the variable
        self._constants: dict[int, int] = {}
        self._described: dict[int, list[OutputType]] = {}  # by address of the type
        self._read_parameters(params or {})
        for index, kind in enumerate(main.kinds):
            if kind is OPERATION:
                self._read_operation(index)
        self.graph.heads = self.entries(main.function.body.body)
        # values of parameters and constants by node name: read-only views of the memory that the
        # module and `params` own. Types numpy has no view of (bfloat16, float8) are copies.
        self.values: Mapping[str, np.ndarray] = MappingProxyType(self._values)

    def entries(self, expr: Any) -> list[Entry]:
        """The entries behind an expression, tuples flattened; none for shapes and numbers."""
        expr = self._main.resolve(expr)
        if isinstance(expr, Tuple):
            return [entry for field in expr.fields for entry in self.entries(field)]
        if isinstance(expr, GenericConst):
            return [(self._constant(expr), 0)]
        number = self._main.number(expr)
        return [] if number is None else self._entries_of(number)

    def _entries_of(self, number: int) -> list[Entry]:
        """The entries behind a parameter, an operation or a projection."""
        if number not in self._entries:
            value = self._main.values[number]
            fields = value.tuple_value.ty.fields
            start = sum(len(leaf_types(field)) for field in fields[: value.index])
            stop = start + len(leaf_types(fields[value.index]))
            self._entries[number] = self.entries(value.tuple_value)[start:stop]
        return self._entries[number]

    def _add(self, node: Node, binding: int | None) -> int:
        self.graph.nodes.append(node)
        self.binding_of.append(binding)
        return len(self.graph.nodes) - 1

    def _types(self, ty: Any) -> list[OutputType]:
        """Shape and dtype of each output of a type; the module keeps the types alive."""
        address = ty.__chandle__()
        if address not in self._described:
            self._described[address] = [_describe(leaf, self._symbols) for leaf in leaf_types(ty)]
        return self._described[address]

    def _name(self, name: str) -> str:
        """The variable's own name; only a second variable of that name gets a new one."""
        if name not in self._used:
            self._used.add(name)
            return name
        return self._names.unique(name)

    def _read_parameters(self, params: Mapping[str, Any]) -> None:
        attrs = self._main.function.attrs
        inputs = int(attrs["num_input"]) if attrs and "num_input" in attrs else None
        for position, parameter in enumerate(self._main.parameters):
            value = params.get(parameter.name)
            known = value is not None or (inputs is not None and position >= inputs)
            name = self._name(parameter.name)
            types = self._types(parameter.ty)
            node = self._add(Node(VARIABLE, name, [], {"param": str(known)}, types), None)
            self._entries[-1 - position] = [(node, output) for output in range(len(types))]
            if value is not None:
                self._values[name] = _checked(name, parameter.ty, value)

    def _constant(self, constant: Any) -> int:
        key = hash(constant)  # its address; the module keeps it alive
        if key not in self._constants:
            own = operand_name(constant) or f"const_{len(self._constants)}"
            name = self._names.unique(own)
            node = Node(VARIABLE, name, [], {"param": "True"}, self._types(constant.ty))
            self._constants[key] = self._add(node, None)
            if isinstance(constant.value, runtime.Tensor):
                self._values[name] = _view(constant.value)
        return self._constants[key]

    def _read_operation(self, index: int) -> None:
        main, inputs = self._main, list[Entry]()
        binding, value, operands = main.bindings[index], main.values[index], main.operands[index]
        attrs: dict[str, str] = {}
        if type(binding) is relax.MatchCast:
            op, inputs = "match_cast", self.entries(value)
        elif main.callees[index] is not None:
            op, attrs = self._operator(value, main.callees[index])
            if operands is None:
                for number in main.reads[index]:
                    inputs += self._entries_of(number)
            for position, argument in enumerate(operands or ()):
                found = self.entries(argument)
                inputs += found
                resolved = argument if found else main.resolve(argument)
                if not found and not (isinstance(resolved, Tuple) and not resolved.fields):
                    attrs[_argument_names(value)[position]] = _text(resolved)
        else:
            op = "if" if isinstance(value, relax.If) else "function"
            for number in main.sources[index]:
                inputs += self._entries_of(number)
        types = self._types(main.variables[index].ty)
        name = self._name(self._own_names[len(main.parameters) + index])
        node = self._add(Node(op, name, inputs, attrs, types, source_name(value)), index)
        self._entries[index] = [(node, output) for output in range(len(types))]

    def _operator(self, call: Any, callee: Any) -> tuple[str, dict[str, str]]:
        """Operator name and parameters of a call, its arguments left aside."""
        if type(callee) is Op:
            return callee.name.removeprefix("relax."), _parameters(call.attrs)
        if isinstance(callee, GlobalVar):
            function = self._main.module[callee]
            attrs = _parameters(function.attrs)
            return attrs.get("baton.subgraph_op", "call"), {"func": callee.name_hint, **attrs}
        if isinstance(callee, relax.ExternFunc):
            return "call_packed", {"func": callee.global_symbol}
        return "call_closure", {}


def _describe(ty: Any, known: Mapping[Any, str]) -> OutputType:
    """Shape as text and dtype of one output; "" for what is unknown."""
    if not isinstance(ty, relax.TensorType):
        return "", ""
    shape = ty.shape
    text = ""
    if isinstance(shape, relax.ShapeExpr):
        sizes = (
            str(size.value if type(size) is IntImm else dynamic_shape.number_or_text(size, known))
            for size in shape.values[:]
        )
        text = f"[{', '.join(sizes)}]"
    return text, str(ty.dtype) if ty.dtype is not None else ""


def _argument_names(call: Any) -> list[str]:
    names = list(_declared_names(call.op.name)) if isinstance(call.op, Op) else []
    return names + [f"arg{position}" for position in range(len(names), len(call.args))]


@cache
def _declared_names(op: str) -> tuple[str, ...]:
    declared = tuple(argument.name for argument in Op.get(op).arguments or ())
    return _ARGUMENT_NAMES.get(op, declared)


def _parameters(attrs: Any) -> dict[str, str]:
    held = {} if attrs is None else attribute_values(attrs)
    return {key: _text(value) for key, value in held.items()}


def _text(value: Any) -> str:
    """A parameter as a string, the way Python prints it: "1", "[1, 1]", "None", "NCHW"."""
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, Sequence):  # of TVM's arrays a slice is several times faster to iterate
        return f"[{', '.join([_text(item) for item in value[:]])}]"
    if isinstance(value, relax.ShapeExpr):
        return _text(list(value.values))
    if isinstance(value, Tuple):
        return _text(list(value.fields))
    if isinstance(value, (GlobalVar, relax.ExternFunc)):
        return str(getattr(value, "name_hint", None) or value.global_symbol)
    if isinstance(value, StringImm):
        return str(value.value)
    number = getattr(value, "value", None)
    return str(number) if isinstance(number, (int, float)) else str(value)


def _view(value: Any) -> np.ndarray:
    try:
        view = np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):  # bfloat16, float8, or not in host memory
        view = value.numpy()
    view = view.view()
    view.flags.writeable = False
    return view


def _checked(name: str, ty: Any, value: Any) -> np.ndarray:
    """A read-only view of a parameter's value, after comparing it with the parameter's type."""
    if not isinstance(value, (np.ndarray, runtime.Tensor)):
        raise PartitionError(
            f"params[{name!r}] is a {type(value).__name__}; give a numpy array or a TVM tensor"
        )
    shape, dtype = _describe(ty, {})
    given = str(list(value.shape)), str(value.dtype)
    static = shape and all(part.strip().isdigit() for part in shape[1:-1].split(",") if part)
    if (static and given[0] != shape) or (dtype and given[1] != dtype):
        raise PartitionError(
            f"params[{name!r}] has shape {given[0]} and dtype {given[1]}; "
            f"the parameter of main has {shape} and {dtype}"
        )
    if isinstance(value, runtime.Tensor):
        return _view(value)
    view = value.view()
    view.flags.writeable = False
    return view
