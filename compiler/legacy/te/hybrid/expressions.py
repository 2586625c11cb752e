"""Expressions of a hybrid function: Python's syntax over numbers, arrays and TIR's expressions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, NoReturn

import tvm
from tvm import tirx
from tvm.ir import is_prim_expr
from tvm.tirx.buffer import is_buffer_var

from ....errors import ScheduleError
from ..dataflow import sequence
from .functions import SYMBOLIC, LoopRange, as_expr
from .source import Source


class Scalar:
    """A variable that is written more than once: an array of one element."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer


class Blocks:
    """The statements of a function, and the values of its names at the current statement.

    `names`: names end with the block that defines them.
    """

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._open: list[tuple[list[Any], dict[str, Any]]] = [([], {})]
        self._loops = [0]

    def emit(self, statement: Any) -> None:
        """Add a statement."""
        self._open[-1][0].append(statement)

    def open(self, is_loop: bool) -> None:
        """Begin a block: the body of a loop, or of a condition."""
        if is_loop:
            self._loops.append(len(self._open))
        self._open.append(([], dict(self.names)))

    def close(self) -> Any:
        """End a block; its statements as one."""
        statements, before = self._open.pop()
        if self._loops[-1] == len(self._open):
            self._loops.pop()
        self.names = before
        return sequence(statements)

    def declare(self, name: str, scalar: Scalar) -> None:
        """A variable of the loop around: it outlasts conditions in which it is first written."""
        level = self._loops[-1]
        self._open[level][0].insert(0, tirx.AllocBuffer(scalar.buffer))
        for _, before in self._open[level + 1 :]:
            before[name] = scalar
        self.names[name] = scalar

    def get(self) -> Any:
        """All statements as one."""
        return sequence(self._open[0][0])


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: lambda a, b: tirx.EQ(*matched(a, b)) if _any_expr(a, b) else a == b,
    ast.NotEq: lambda a, b: tirx.NE(*matched(a, b)) if _any_expr(a, b) else a != b,
}


def _any_expr(*values: Any) -> bool:
    return any(is_prim_expr(value) for value in values)


def matched(a: Any, b: Any) -> tuple[Any, Any]:
    """Two expressions as ones of one type, as arithmetic does it."""
    total = as_expr(a) + as_expr(b)
    dtype = str(total.ty.dtype)
    return as_expr(a).astype(dtype), as_expr(b).astype(dtype)


class Expressions(ast.NodeVisitor):
    """Evaluates expressions: what is known is a Python value, the rest an expression of TIR.

    `source`: the function's, for messages.
    """

    def __init__(self, source: Source) -> None:
        self.source = source

    def refuse(self, node: ast.AST, reason: str) -> NoReturn:
        """Raise a `ScheduleError` that names function, file and line."""
        where = f"{self.source.file}:{getattr(node, 'lineno', '?')}"
        raise ScheduleError(f"hybrid.script {self.source.name}, {where}: {reason}")

    def generic_visit(self, node: ast.AST) -> NoReturn:
        self.refuse(node, f"{type(node).__name__} is no part of the hybrid language")

    def lookup(self, node: ast.Name) -> Any:
        """Value that a name refers to."""
        raise NotImplementedError

    def call_script(self, node: ast.Call, function: Any, args: list[Any]) -> Any:
        """A call of another hybrid function, or of one that makes a buffer."""
        raise NotImplementedError

    # --- values --------------------------------------------------------------------------

    def visit_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def visit_Name(self, node: ast.Name) -> Any:
        value = self.lookup(node)
        return tirx.BufferLoad(value.buffer, [0]) if isinstance(value, Scalar) else value

    def visit_Tuple(self, node: ast.Tuple) -> Any:
        return tuple(self.visit(each) for each in node.elts)

    def visit_List(self, node: ast.List) -> Any:
        return [self.visit(each) for each in node.elts]

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        value = self.visit(node.value)
        if is_buffer_var(value) and node.attr == "shape":
            return tuple(_number(extent) for extent in value.shape)
        if node.attr == "dtype" and (is_buffer_var(value) or is_prim_expr(value)):
            return str(value.dtype if is_buffer_var(value) else value.ty.dtype)
        self.refuse(node, f"arrays have the attributes shape and dtype, not {node.attr}")

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        value, indices = self.place(node)
        return tirx.BufferLoad(value, indices) if indices else value

    def place(self, node: ast.Subscript) -> tuple[Any, list[Any]]:
        """An array and indices into it; or an element of a list of known values, and none."""
        indices: list[Any] = []
        base: ast.expr = node
        while isinstance(base, ast.Subscript):
            index = self.visit(base.slice)
            indices = [*(index if isinstance(index, tuple) else (index,)), *indices]
            base = base.value
        value = self.visit(base)
        while indices and not is_buffer_var(value):
            index = indices.pop(0)
            if not isinstance(index, int):
                self.refuse(node, f"a list of constants needs a constant index, not {index}")
            try:
                value = value[index]
            except (TypeError, IndexError) as error:
                self.refuse(node, f"{ast.unparse(node)}: {error}")
        if indices and len(indices) != len(value.shape):
            found = f"{value.name} has {len(value.shape)} dimensions, not {len(indices)}"
            self.refuse(node, found)
        return value, indices

    # --- operators -----------------------------------------------------------------------

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return self.binary(node, node.op, self.visit(node.left), self.visit(node.right))

    def binary(self, node: ast.AST, op: ast.operator, left: Any, right: Any) -> Any:
        """Two values combined by an operator."""
        function = _BINARY.get(type(op))
        if function is None:
            self.refuse(node, f"the operator {type(op).__name__} is no part of the language")
        try:
            if isinstance(op, ast.Pow) and _any_expr(left, right):
                return tirx.power(*matched(left, right))
            return function(left, right)
        except (TypeError, ZeroDivisionError, tvm.error.TVMError) as error:
            self.refuse(node, f"{ast.unparse(node)}: {error}")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return tirx.Not(as_expr(value)) if _any_expr(value) else not value
        if isinstance(node.op, ast.USub):
            return -value
        return ~value if isinstance(node.op, ast.Invert) else value

    def visit_Compare(self, node: ast.Compare) -> Any:
        result: Any = True
        values = [self.visit(node.left), *(self.visit(each) for each in node.comparators)]
        for op, left, right in zip(node.ops, values, values[1:]):
            if type(op) not in _COMPARE:
                self.refuse(node, f"the comparison {type(op).__name__} is no part of the language")
            result = _connect(True, result, _COMPARE[type(op)](left, right))
        return result

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        is_and = isinstance(node.op, ast.And)
        result: Any = is_and
        for value in map(self.visit, node.values):
            result = _connect(is_and, result, value)
        return result

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.visit(node.test)
        if not _any_expr(condition):
            return self.visit(node.body if condition else node.orelse)
        values = matched(self.visit(node.body), self.visit(node.orelse))
        return tirx.if_then_else(condition, *values)

    # --- calls ---------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Name):
            self.refuse(node, f"{ast.unparse(node.func)}(...): functions are called by plain names")
        args = [self.visit(each) for each in node.args]
        named = {str(each.arg): self.visit(each.value) for each in node.keywords}
        name = node.func.id
        if name == "len":
            return self._length(node, args[0])
        if name in ("output_tensor", "allocate"):
            return self.make_buffer(node, name, *args, **named)
        function = self.lookup(node.func)
        if hasattr(function, "hybrid_source"):
            return self.call_script(node, function, args)
        if SYMBOLIC.get(name) is not function:
            self.refuse(node, f"{name} is neither a hybrid.script nor of the language")
        try:
            return SYMBOLIC[name](*args, **named)
        except TypeError as error:
            self.refuse(node, f"{name}: {error}")

    def make_buffer(
        self, node: ast.Call, kind: str, shape: Any, dtype: str = "float32", scope: str = "global"
    ) -> Any:
        """A new array."""
        raise NotImplementedError

    def _length(self, node: ast.AST, value: Any) -> Any:
        if is_buffer_var(value):
            return _number(value.shape[0])
        if isinstance(value, LoopRange) or not hasattr(value, "__len__"):
            self.refuse(node, f"{value!r} has no length")
        return len(value)


def _number(extent: Any) -> Any:
    return int(extent) if isinstance(extent, tirx.IntImm) else extent


def _connect(is_and: bool, left: Any, right: Any) -> Any:
    """`left and right`, or `left or right`, of which either may be known."""
    for one, other in ((left, right), (right, left)):
        if not is_prim_expr(one):
            return other if bool(one) is is_and else one
    return (tirx.And if is_and else tirx.Or)(left, right)
