"""Reject damaged `tvm.ir.save_json` output that would crash TVM's reader or its passes.

    nodes: [{"type": "ffi.Array", "data": [0]},
            {"type": "ir.PrimType", "data": {"span": 0, "dtype": "float32"}}, ...]

A node refers to others by their numbers. TVM 0.27 reads referenced nodes first, recurses endlessly
on cycles, and puts null into fields that the rest of TVM assumes to match their type. This check
requires that every reference is to an earlier node of the type that TVM registered for the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_DEEPEST = 4000
"""Nodes within nodes; TVM's reader needs about 1 KB of the stack for each."""

_LITERALS: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "bool": bool,
    "float": (int, float),
    "DataType": str,
    "Device": list,
    "std::string": str,
}
"""Types of fields that hold a value, not the number of a node."""

_VALUES = {**_LITERALS, "ffi.String": str, "ffi.Bytes": str, "ffi.Tensor": str, "ffi.Shape": list}
"""Types of nodes that hold a value."""

_LISTS = ("ffi.Array", "ffi.List", "ffi.Map", "ffi.Dict")

_MAY_BE_NULL = ("span", "dom", "ir.Attrs")
"""Fields, and types of fields, that TVM leaves null, though not registered as optional."""

_STATISTICS = ("sum", "mean", "max", "min", "prod", "std", "variance", "median")
_ATTRIBUTES = {
    "relax.matmul": "relax.attrs.MatmulAttrs",
    "relax.bucketize": "relax.attrs.BucketizeAttrs",
    "relax.ccl.allgather": "relax.attrs.AllGatherAttrs",
    **dict.fromkeys(("relax.argmax", "relax.argmin"), "relax.attrs.ArgmaxArgminAttrs"),
    **{f"relax.{op}": "relax.attrs.StatisticalAttrs" for op in _STATISTICS},
}
"""Attributes of the operators of which TVM does not register them."""

CODE = frozenset(
    f"relax.{name}"
    for name in (
        "call_builtin_with_ctx", "call_dps_packed", "call_inplace_packed", "call_pure_packed",
        "call_py_func", "call_tir", "call_tir_inplace", "call_tir_with_grad",
        "dist.call_tir_local_view", "invoke_closure", "invoke_pure_closure", "vm.call_tir_dyn",
    )
)  # fmt: skip
"""Relax operators that call functions by name, or kernels."""

_ARITHMETIC = frozenset(
    [
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "clz",
        "copysign", "cos", "cosh", "ctpop", "erf", "exp", "exp10", "exp2", "fabs", "floor",
        "fma", "fmod", "hypot", "if_then_else", "isfinite", "isinf", "isnan", "ldexp",
        "likely", "log", "log10", "log1p", "log2", "nearbyint", "nextafter", "popcount",
        "pow", "q_multiply_shift", "q_multiply_shift_per_axis", "reinterpret", "round",
        "rsqrt", "selector", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left",
        "shift_right", "large_uint_imm", "infinity", "max_value", "min_value",
    ]
)  # fmt: skip
"""Operators of TIR that compute a number from numbers, and do nothing else."""

_TYPE_RULES = frozenset(["tvm.relax.type.infer_by_ty_args", "tvm.relax.type.infer_view_ty"])
"""Functions by which TVM infers the type of a call; it calls whatever name a document gives."""

_KERNEL_DIALECTS = ("tirx", "tir", "s_tir", "te", "prim")

_MARKS = re.compile(r"pragma_\w+|\w*(import|extern|asm|llvm|source|scope)\w*", re.IGNORECASE)
"""Annotations and attributes that TVM's passes act upon; a workload before tuning has none."""

Schema = dict[str, Any]
"""A type as TVM registers it: its name as "type", those that it is made of as "args"."""


def check_no_code(document: Any, kernels: bool = False) -> None:
    """Reject a document from which a build would generate code of its writer's choice.

    The document has passed `check_document`. With `kernels` it may hold TIR functions that compute
    numbers: workloads of tuning logs. Raises ValueError: it names external functions, calls kernels
    or functions by name, or holds machine code.
    """
    nodes = document["nodes"]
    for node in nodes:
        kind, data = node["type"], node.get("data")
        if kind == "ir.Op" and isinstance(data, str):
            dialect, _, name = data.partition(".")
            if data in CODE or (dialect in _KERNEL_DIALECTS and name not in _ARITHMETIC):
                raise ValueError(f"it calls {data}")
        elif kind == "ir.EnvFunc" and data not in _TYPE_RULES:
            raise ValueError(f"it calls the registered function {str(data)[:60]!r}")
        elif kind == "relax.expr.ExternFunc" or kind.startswith(("ffi.Module", "runtime.")):
            raise ValueError(f"it holds {kind}")
        elif kind == "tirx.PrimFunc" and not kernels:
            raise ValueError("it holds kernels (TIR functions)")
        elif kind == "tirx.AttrStmt" and _MARKS.search(_text(nodes, data["attr_key"])):
            raise ValueError(f"it has the attribute {_text(nodes, data['attr_key'])!r}")
        elif kind in ("tirx.For", "s_tir.SBlock") and isinstance(data, dict):
            annotations = nodes[data["annotations"]].get("data") or ()
            for key in annotations[::2]:
                if _MARKS.search(_text(nodes, key)):
                    raise ValueError(f"it has the annotation {_text(nodes, key)!r}")


def _text(nodes: list[Any], value: Any) -> str:
    """A string field: the text itself, or the number of the node that holds it."""
    return str(nodes[value].get("data")) if type(value) is int else str(value)


def check_document(document: Any) -> None:
    """Raise ValueError unless it is an undamaged document of `tvm.ir.save_json`."""
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise ValueError("it has no list of nodes")
    checker, root = _Checker(document["nodes"]), document.get("root_index")
    for number in range(len(checker.nodes)):
        checker.check(number)
    if type(root) is not int or not 0 <= root < len(checker.nodes):
        raise ValueError(f"its root is {root!r}, which is not a node")


class _Checker:
    def __init__(self, nodes: list[Any]):
        self.nodes = nodes
        self.depths: list[int] = []
        self.types = _Types()
        self.right: set[tuple[int, int]] = set()  # node, and identity of a schema that it matches

    def check(self, number: int) -> None:
        """Reject a damaged node; earlier nodes have been checked."""
        node = self.nodes[number]
        if not isinstance(node, dict) or not isinstance(node.get("type"), str):
            raise ValueError(f"node {number} has no type")
        kind, data = node["type"], node.get("data")
        fields = self.types.fields(kind)
        depth = 0
        for other in _references(kind, data, fields):
            if type(other) is not int or not 0 <= other < number:
                raise ValueError(f"node {number} refers to node {other!r}, which is not before it")
            depth = max(depth, 1 + self.depths[other])
        if depth > _DEEPEST:
            raise ValueError(f"nodes are nested more than {_DEEPEST} deep")
        self.depths.append(depth)
        if kind in _VALUES:
            if not _is_value(data, _VALUES[kind]):
                raise ValueError(f"node {number} is not of the type {kind}")
        elif isinstance(data, dict):
            self._check_fields(number, kind, data, fields)

    def _check_fields(
        self, number: int, kind: str, data: dict[str, Any], fields: dict[str, Schema]
    ) -> None:
        for name, value in data.items():
            schema = fields.get(name)
            if schema is None:
                raise ValueError(f"node {number}, {kind}, has no field {name!r}")
            if schema["type"] in _LITERALS:
                fits = _is_value(value, _LITERALS[schema["type"]])
            elif name in _MAY_BE_NULL or schema["type"] in _MAY_BE_NULL:
                fits = self._is_null(value) or self._fits(value, schema)
            else:
                fits = self._fits(value, schema)
            if not fits:
                raise ValueError(f"node {number}, {kind}, lacks a part: {name} is of another type")
        if kind == "ir.Call":
            self._check_call(number, data)

    def _check_call(self, number: int, data: dict[str, Any]) -> None:
        """Check attributes' types, which type inference reads unchecked."""
        if not {"op", "args", "attrs"} <= data.keys():
            raise ValueError(f"node {number}, ir.Call, lacks a part")
        op = self.nodes[data["op"]]
        if op["type"] != "ir.Op" or not isinstance(op.get("data"), str):
            return
        wanted = self.types.attributes(op["data"])
        given = self.nodes[data["attrs"]]["type"]
        if wanted and given != wanted:
            raise ValueError(f"node {number}, {op['data']}, has attributes of the type {given}")

    def _is_null(self, number: int) -> bool:
        return bool(self.nodes[number]["type"] == "None")

    def _fits(self, number: int, schema: Schema) -> bool:
        kind, args = schema["type"], schema.get("args", ())
        if kind == "Any" or (number, id(schema)) in self.right:
            return True
        node = self.nodes[number]
        if kind == "Optional":
            fits = self._is_null(number) or self._fits(number, args[0])
        elif kind == "Variant":
            fits = any(self._fits(number, each) for each in args)
        elif kind in _LISTS:
            fits = node["type"] == kind
            for at, each in enumerate(node["data"] if fits and args else ()):
                fits = fits and self._fits(each, args[at % len(args)])
        elif kind == "ffi.BigInt":
            fits = node["type"] in ("int", "ffi.BigInt")
        elif kind == "float":
            fits = node["type"] in ("int", "float")
        else:
            fits = self.types.derives(node["type"], kind)
        if fits:
            self.right.add((number, id(schema)))
        return fits


def _references(kind: str, data: Any, fields: dict[str, Schema]) -> Iterator[Any]:
    """Fields that must be node indices."""
    if kind in _LISTS:
        if not isinstance(data, list) or (kind in ("ffi.Map", "ffi.Dict") and len(data) % 2):
            raise ValueError(f"a node of the type {kind} is not a list of nodes")
        yield from data
    elif isinstance(data, dict):
        for name, value in data.items():
            if fields.get(name, {}).get("type") not in _LITERALS:
                yield value


def _is_value(data: Any, kind: type | tuple[type, ...]) -> bool:
    if isinstance(data, bool):
        return kind is bool
    return isinstance(data, kind) and (type(data) is not int or -(2**63) <= data < 2**63)


class _Types:
    """Types and operators that TVM has registered, looked up once."""

    def __init__(self) -> None:
        self._fields: dict[str, dict[str, Schema]] = {}
        self._ancestors: dict[str, frozenset[str]] = {}
        self._attributes: dict[str, str] = {}

    def fields(self, kind: str) -> dict[str, Schema]:
        """Fields of a type, including inherited ones."""
        if kind not in self._fields:
            self._look_up(kind)
        return self._fields[kind]

    def derives(self, kind: str, base: str) -> bool:
        """Whether a type equals another, or derives from it."""
        if kind not in self._ancestors:
            self._look_up(kind)
        return kind == base or base in self._ancestors[kind]

    def attributes(self, operator: str) -> str:
        """Type of an operator's attributes; "" if any type is valid."""
        if operator not in self._attributes:
            import tvm

            known = operator in tvm.ir.Op.list_op_names()  # TVM rejects unknown operators
            registered = str(tvm.ir.Op.get(operator).attrs_type_key) if known else ""
            self._attributes[operator] = _ATTRIBUTES.get(operator, registered)
        return self._attributes[operator]

    def _look_up(self, kind: str) -> None:
        from tvm_ffi import core

        fields: dict[str, Schema] = {}
        ancestors = set()
        try:
            info: Any = core._lookup_or_register_type_info_from_type_key(kind)
        except ValueError as error:
            raise ValueError(f"TVM has no type {kind!r}") from error
        while info is not None:
            ancestors.add(str(info.type_key))
            for each in info.fields or ():
                schema = json.loads((each.metadata or {}).get("type_schema", '{"type": "Any"}'))
                fields.setdefault(each.name, schema)
            info = info.parent_type_info
        self._fields[kind], self._ancestors[kind] = fields, frozenset(ancestors)
