"""Printer of Relay text, format 0.0.5, with its metadata section."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import RelayError
from ..saved.arrays import encode_array
from . import syntax

_INLINE = {
    "bool": "",
    "int16": "i16",
    "int32": "",
    "int64": "i64",
    "float16": "f16",
    "float32": "f",
    "float64": "f64",
}


def write(module: syntax.Module, show_meta_data: bool = True) -> str:
    """Print a module as text; without tensors (`show_meta_data`) it cannot be parsed."""
    writer = _Writer()
    parts = [writer.data_type(each) for each in module.types.values()]
    for name, function in module.functions.items():
        parts.append("def @" + name + writer.function(function, "") + "\n")
    return _document(writer, "\n".join(parts), show_meta_data)


def write_function(
    function: syntax.Function, show_meta_data: bool = True, free: Sequence[syntax.Var] = ()
) -> str:
    """Print an unnamed function after the declarations of its free variables."""
    writer = _Writer()
    declared = "".join(f"free_var {writer.parameter(var)};\n" for var in free)
    program = f"{declared}fn {writer.function(function, '')}\n"
    return _document(writer, program, show_meta_data)


def write_expression(
    free: Sequence[syntax.Var], block: syntax.Block, show_meta_data: bool = True
) -> str:
    """Print an expression after the declarations of its free variables."""
    writer = _Writer()
    lines = [f"free_var {writer.parameter(var)};" for var in free]
    return _document(writer, "\n".join([*lines, *writer.lines(block, "")]) + "\n", show_meta_data)


def write_type(kind: syntax.Type | None) -> str:
    """Print a type; `_` if it is unknown."""
    if isinstance(kind, syntax.TensorType):
        if not kind.shape:
            return kind.dtype
        return (
            f"Tensor[({', '.join('?' if d is None else str(d) for d in kind.shape)}), {kind.dtype}]"
        )
    if isinstance(kind, syntax.TupleType):
        fields = ", ".join(map(write_type, kind.fields))
        return f"({fields},)" if len(kind.fields) == 1 else f"({fields})"
    if isinstance(kind, syntax.FuncType):
        names = f" [{', '.join(kind.type_params)}]" if kind.type_params else " "
        return (
            f"fn{names}({', '.join(map(write_type, kind.arguments))}) -> {write_type(kind.result)}"
        )
    if isinstance(kind, syntax.RefType):
        return f"ref({write_type(kind.value)})"
    if isinstance(kind, syntax.NamedType):
        inside = ", ".join(map(write_type, kind.arguments))
        return f"{kind.name}[{inside}]" if kind.applied or kind.arguments else kind.name
    return "_"


def _document(writer: _Writer, program: str, show_meta_data: bool) -> str:
    text = f'#[version = "0.0.5"]\n{program}'
    if not writer.constants:
        return text
    if not show_meta_data:
        return text + "/* For metadata section: show_meta_data=True */\n"
    return f"{text}\n#[metadata]\n{writer.metadata()}\n"


class _Writer:
    def __init__(self) -> None:
        self.constants: list[np.ndarray] = []
        self.numbers: dict[int, int] = {}
        self.kept: list[Any] = []
        self.names: dict[syntax.Var, str] = {}
        self.taken: set[str] = set()
        self.count = 0

    def data_type(self, made: syntax.DataType) -> str:
        params = f"[{', '.join(made.type_params)}]" if made.type_params else ""
        lines = [f"type {made.name}{params} {{"]
        for name, fields in made.constructors.items():
            inside = f"({', '.join(map(write_type, fields))})" if fields else ""
            lines.append(f"  {name}{inside},")
        return "\n".join([*lines, "}\n"])

    def function(self, function: syntax.Function, indent: str) -> str:
        """Print parameters, result type and body."""
        params = f"[{', '.join(function.type_params)}]" if function.type_params else ""
        parameters = [self.parameter(var) for var in function.parameters]
        parameters += [
            f"{key}={self.attribute(value)}" for key, value in function.attributes.items()
        ]
        result = f" -> {write_type(function.result)}" if function.result is not None else ""
        return f"{params}({', '.join(parameters)}){result} {self.block(function.body, indent)}"

    def parameter(self, var: syntax.Var) -> str:
        name = self.name(var)
        if var.type is None:
            return name
        shown = write_type(var.type)
        return f"{name}: {shown} /* ty={shown} */"

    def block(self, block: syntax.Block, indent: str) -> str:
        return "{\n" + "\n".join(self.lines(block, indent + "  ")) + f"\n{indent}}}"

    def lines(self, block: syntax.Block, indent: str) -> list[str]:
        """Print bindings and the result."""
        lines = []
        for var, value in block.bindings:
            shown = self.expression(value, indent)
            lines.append(f"{indent}{self.bound(var)} = {shown}{_comment(var.type, var.place)};")
        shown = self.expression(block.result, indent)
        return [*lines, f"{indent}{shown}{_comment(block.type, block.place)}"]

    def bound(self, var: syntax.Var) -> str:
        """Print the left side of a binding: the next graph binding number, or a let."""
        if var.number is None:
            return f"let {self.name(var)}"
        self.names[var] = f"%{self.count}"
        self.count += 1
        return self.names[var]

    def name(self, var: syntax.Var) -> str:
        if var not in self.names:
            wanted = re.sub(r"[^\w./]|\.(?![A-Za-z_])", "_", var.name)  # %x.0 would be a field
            if not re.match(r"[A-Za-z]", wanted):
                wanted = "v" + wanted
            unique, number = wanted, 0
            while unique in self.taken:
                number += 1
                unique = f"{wanted}{number}"
            self.taken.add(unique)
            self.names[var] = "%" + unique
        return self.names[var]

    def expression(self, expr: syntax.Expr, indent: str) -> str:
        if isinstance(expr, syntax.Var):
            return self.name(expr)
        if isinstance(expr, syntax.Call):
            return self.call(expr, indent)
        if isinstance(expr, syntax.Constant):
            return self.constant(expr.value)
        if isinstance(expr, syntax.Tuple):
            fields = [self.expression(field, indent) for field in expr.fields]
            return f"({fields[0]},)" if len(fields) == 1 else f"({', '.join(fields)})"
        if isinstance(expr, syntax.Field):
            return f"{self.expression(expr.tuple, indent)}.{expr.index}"
        if isinstance(expr, syntax.Function):
            return "fn " + self.function(expr, indent)
        if isinstance(expr, syntax.If):
            condition = self.expression(expr.condition, indent)
            then = self.block(expr.then, indent)
            return f"if ({condition}) {then} else {self.block(expr.otherwise, indent)}"
        if isinstance(expr, syntax.Global):
            return "@" + expr.name
        if isinstance(expr, (syntax.Op, syntax.Kernel, syntax.Constructor)):
            return expr.name
        if isinstance(expr, syntax.Extents):
            return f"[{', '.join(expr.values)}]"
        if isinstance(expr, syntax.Match):
            return self.match(expr, indent)
        if isinstance(expr, syntax.RefCreate):
            return f"ref({self.expression(expr.value, indent)})"
        if isinstance(expr, syntax.RefRead):
            return f"ref_read({self.expression(expr.ref, indent)})"
        if isinstance(expr, syntax.RefWrite):
            parts = self.expression(expr.ref, indent), self.expression(expr.value, indent)
            return f"ref_write({', '.join(parts)})"
        raise RelayError(f"a {type(expr).__name__} is not written")

    def match(self, match: syntax.Match, indent: str) -> str:
        lines = [
            f"match{'' if match.complete else '?'} ({self.expression(match.value, indent)}) {{"
        ]
        for clause in match.clauses:
            shown = self.pattern(clause.pattern)
            lines.append(f"{indent}  {shown} => {self.block(clause.body, indent + '  ')},")
        return "\n".join([*lines, f"{indent}}}"])

    def pattern(self, pattern: syntax.Pattern) -> str:
        if isinstance(pattern, syntax.VarPattern):
            return self.parameter(pattern.var).split(" /*")[0]
        if isinstance(pattern, syntax.AnyPattern):
            return "_"
        inside = ", ".join(map(self.pattern, pattern.fields))
        if isinstance(pattern, syntax.TuplePattern):
            return f"({inside})"
        return f"{pattern.name}({inside})" if inside else pattern.name

    def call(self, call: syntax.Call, indent: str) -> str:
        operands = [self.expression(each, indent) for each in call.arguments]
        attributes = call.attributes
        if isinstance(call.function, syntax.Op):
            attributes = _differing(call.function.name, attributes)
        operands += [f"{key}={self.attribute(value)}" for key, value in attributes.items()]
        return f"{self.expression(call.function, indent)}({', '.join(operands)})"

    def constant(self, value: Any) -> str:
        dtype, shape = str(value.dtype), tuple(value.shape)
        if shape == () and dtype in _INLINE:
            number = np.asarray(value.numpy() if hasattr(value, "numpy") else value)[()]
            if not (dtype.startswith("float") and np.isnan(number)):
                return f"{_scalar(number, dtype)} /* ty={dtype} */"
        key = id(value)
        if key not in self.numbers:
            self.kept.append(value)  # ids are unique only while objects live
            self.numbers[key] = len(self.constants)
            self.constants.append(value.numpy() if hasattr(value, "numpy") else value)
        shown = write_type(syntax.TensorType(shape, dtype))
        return f"meta[relay.Constant][{self.numbers[key]}] /* ty={shown} */"

    def attribute(self, value: Any) -> str:
        """Print an attribute value: numbers, strings, lists."""
        if value is None or isinstance(value, (bool, np.bool_)):
            return str(value)
        if isinstance(value, (int, np.integer)):
            return str(int(value))
        if isinstance(value, (float, np.floating)):
            return _float(float(value)) + "f"
        if isinstance(value, str):
            escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f'"{escaped}"'
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            return self.constant(value).split(" /*")[0]
        if hasattr(value, "__iter__") and not hasattr(value, "items"):
            return f"[{', '.join(self.attribute(item) for item in value)}]"
        if hasattr(value, "value"):
            return self.attribute(value.value)
        raise RelayError(f"an attribute of the type {type(value).__name__} is not written")

    def metadata(self) -> str:
        """JSON of the metadata section: one Constant node for each tensor."""
        nodes: list[dict[str, Any]] = [
            {"type_key": ""},
            {"type_key": "Map", "keys": ["relay.Constant"], "data": [2]},
            {"type_key": "Array", "data": []},
            {"type_key": "runtime.String"},
            {
                "type_key": "VirtualDevice",
                "attrs": {
                    "device_type_int": "-1",
                    "memory_scope": "3",
                    "target": "0",
                    "virtual_device_id": "-1",
                },
            },
        ]
        for number in range(len(self.constants)):
            nodes[2]["data"].append(len(nodes))
            nodes.append(
                {
                    "type_key": "relay.Constant",
                    "attrs": {
                        "_checked_type_": "0",
                        "data": str(number),
                        "span": "0",
                        "virtual_device_": "4",
                    },
                }
            )
        document = {
            "root": 1,
            "nodes": nodes,
            "b64ndarrays": [encode_array(np.asarray(array)) for array in self.constants],
            "attrs": {"tvm_version": "0.18.0"},
        }
        return json.dumps(document, indent=1)


def _comment(kind: syntax.Type | None, place: str = "") -> str:
    parts = [f"ty={write_type(kind)}"] if kind is not None else []
    parts += [f"span={place}"] if place and "*/" not in place else []
    return f" /* {' '.join(parts)} */" if parts else ""


# Attributes that Relay's printer always shows; their defaults exist only in the Python API.
_ALWAYS = frozenset({"pool_size"})


def _differing(name: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes that differ from the parser's defaults."""
    from ..op import registry

    defaults = registry.lookup(name).attributes
    return {
        key: value
        for key, value in attributes.items()
        if key in _ALWAYS or not (key in defaults and _same(value, defaults[key]))
    }


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, (list, tuple)) or isinstance(default, (list, tuple)):
        return (
            isinstance(value, (list, tuple))
            and isinstance(default, (list, tuple))
            and len(value) == len(default)
            and all(map(_same, value, default))
        )
    return type(value) is type(default) and bool(value == default)


def _scalar(value: Any, dtype: str) -> str:
    if dtype == "bool":
        return str(bool(value))
    if dtype.startswith("int"):
        return f"{int(value)}{_INLINE[dtype]}"
    return _float(float(str(value))) + _INLINE[dtype]


def _float(value: float) -> str:
    """Shortest decimal that parses to the same number."""
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = repr(value)
    return text[:-2] if text.endswith(".0") else text
