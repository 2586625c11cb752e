"""Statements of TIR as the text of a hybrid function."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir import Call, Op, StringImm, TensorLoad
from tvm.tirx.buffer import is_buffer_var

from ....errors import ScheduleError
from .functions import SYMBOLIC

_KINDS = {
    tirx.ForKind.SERIAL: "range",
    tirx.ForKind.PARALLEL: "parallel",
    tirx.ForKind.VECTORIZED: "vectorize",
    tirx.ForKind.UNROLLED: "unroll",
}
_INFIX = {
    tirx.Add: "+",
    tirx.Sub: "-",
    tirx.Mul: "*",
    tirx.FloorDiv: "//",
    tirx.FloorMod: "%",
    tirx.Mod: "%",
    tirx.EQ: "==",
    tirx.NE: "!=",
    tirx.LT: "<",
    tirx.LE: "<=",
    tirx.GT: ">",
    tirx.GE: ">=",
    tirx.And: "and",
    tirx.Or: "or",
}
_OF_PYTHON = {"int32": int, "float32": float, "bool": bool}


def hybrid_text(function: tirx.PrimFunc, num_inputs: int, name: str) -> str:
    """The text of a hybrid function that does what a function of loops does.

    `num_inputs`: how many of the parameters are inputs; the function returns the others.
    Raises ScheduleError: a statement or an expression has no word in the language.
    """
    printer = _Printer()
    inputs, outputs = list(function.params[:num_inputs]), list(function.params[num_inputs:])
    names = [printer.name(each) for each in inputs]
    printer.name_extents(inputs)
    printer.line(f"def {name}({', '.join(names)}):")
    printer.depth += 1
    for buffer in outputs:
        shape = printer.tuple_of(buffer.shape)
        printer.line(f'{printer.name(buffer)} = output_tensor({shape}, "{buffer.dtype}")')
    printer.statement(function.body)
    printer.line(f"return {', '.join(printer.name(each) for each in outputs)}")
    return "\n".join(printer.lines) + "\n"


class _Printer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self._names: dict[Any, str] = {}
        self._taken: set[str] = set(SYMBOLIC)

    def line(self, text: str) -> None:
        """Write a line at the present depth."""
        self.lines.append("    " * self.depth + text)

    def name(self, var: Any) -> str:
        """A name of Python for a variable, the same each time."""
        if var not in self._names:
            plain = re.sub(r"\W", "_", str(var.name))
            name, number = plain, 0
            while name in self._taken or not name.isidentifier():
                number += 1
                name = f"{plain}_{number}" if plain.isidentifier() else f"v_{plain}{number}"
            self._names[var] = name
            self._taken.add(name)
        return self._names[var]

    def name_extents(self, inputs: list[Any]) -> None:
        """Extents that are no parameters of their own are those of the arrays."""
        for buffer in filter(is_buffer_var, inputs):
            for axis, extent in enumerate(buffer.shape):
                if isinstance(extent, tirx.Var) and extent not in self._names:
                    self._names[extent] = f"{self.name(buffer)}.shape[{axis}]"

    def tuple_of(self, values: Any) -> str:
        """A tuple of expressions."""
        return "(" + "".join(f"{self.expr(each)}, " for each in values).rstrip() + ")"

    # --- statements ----------------------------------------------------------------------

    def statement(self, node: Any) -> None:
        """Write a statement's lines."""
        write = _STATEMENTS.get(type(node))
        if write is None:
            raise ScheduleError(f"te.hybrid.build: a {type(node).__name__} has no hybrid form")
        write(self, node)

    def _inside(self, header: str, body: Any) -> None:
        self.line(header)
        self.depth += 1
        self.statement(body)
        self.depth -= 1

    def _for(self, node: tirx.For) -> None:
        is_from_0 = isinstance(node.min, tirx.IntImm) and int(node.min) == 0
        first = "" if is_from_0 else f"{self.expr(node.min)}, "
        last = self.expr(node.extent if is_from_0 else node.min + node.extent)
        kind = _KINDS[tirx.ForKind(node.kind)]
        self._inside(f"for {self.name(node.loop_var)} in {kind}({first}{last}):", node.body)

    def _attr(self, node: tirx.AttrStmt) -> None:
        if node.attr_key != "thread_extent":
            self.statement(node.body)
            return
        var, tag = node.node.var, node.node.thread_tag
        self._inside(f'for {self.name(var)} in bind("{tag}", {self.expr(node.value)}):', node.body)

    def _if(self, node: tirx.IfThenElse) -> None:
        self._inside(f"if {self.expr(node.condition)}:", node.then_case)
        if node.else_case is not None:
            self._inside("else:", node.else_case)

    def _sequence(self, node: tirx.SeqStmt) -> None:
        for each in node.seq:
            self.statement(each)

    def _store(self, node: tirx.BufferStore) -> None:
        place = ", ".join(map(self.expr, node.indices))
        self.line(f"{self.name(node.buffer)}[{place}] = {self.expr(node.value)}")

    def _allocate(self, node: tirx.AllocBuffer) -> None:
        buffer = node.buffer
        shape, scope = self.tuple_of(buffer.shape), buffer.scope() or "global"
        self.line(f'{self.name(buffer)} = allocate({shape}, "{buffer.dtype}", "{scope}")')

    def _assert(self, node: tirx.AssertStmt) -> None:
        message = "".join(str(part.value) for part in node.message_parts)
        self.line(f"assert {self.expr(node.condition)}, {message!r}")

    # --- expressions ---------------------------------------------------------------------

    def expr(self, node: Any) -> str:
        """An expression's text."""
        if type(node) in _INFIX:
            return f"({self.expr(node.a)} {_INFIX[type(node)]} {self.expr(node.b)})"
        if is_buffer_var(node) or isinstance(node, tirx.Var):
            return self.name(node)
        write = _EXPRESSIONS.get(type(node))
        if write is None:
            raise ScheduleError(f"te.hybrid.build: a {type(node).__name__} has no hybrid form")
        return write(self, node)

    def _number(self, node: Any) -> str:
        dtype = str(node.ty.dtype)
        python = _OF_PYTHON.get(dtype)
        return repr(python(node.value)) if python else f"{dtype}({node.value!r})"

    def _div(self, node: tirx.Div) -> str:
        sign = "/" if str(node.ty.dtype).startswith("float") else "//"
        return f"({self.expr(node.a)} {sign} {self.expr(node.b)})"

    def choice(self, condition: Any, then: Any, otherwise: Any) -> str:
        """An expression that is one of two."""
        return f"({self.expr(then)} if {self.expr(condition)} else {self.expr(otherwise)})"

    def _call(self, node: Call) -> str:
        name = node.op.name.rpartition(".")[2] if isinstance(node.op, Op) else str(node.op)
        name = {"fabs": "abs", "pow": "power"}.get(name, name)
        if name == "if_then_else":
            return self.choice(*node.args)
        if name not in SYMBOLIC:
            raise ScheduleError(f"te.hybrid.build: a call of {name} has no hybrid form")
        return f"{name}({', '.join(map(self.expr, node.args))})"


_STATEMENTS: dict[type, Callable[[_Printer, Any], None]] = {
    tirx.AllocBuffer: _Printer._allocate,
    tirx.AssertStmt: _Printer._assert,
    tirx.AttrStmt: _Printer._attr,
    tirx.Bind: lambda to, node: to.line(f"{to.name(node.var)} = {to.expr(node.value)}"),
    tirx.BufferStore: _Printer._store,
    tirx.Evaluate: lambda to, node: to.line(
        "pass" if isinstance(node.value, tirx.IntImm) else to.expr(node.value)
    ),
    tirx.For: _Printer._for,
    tirx.IfThenElse: _Printer._if,
    tirx.SeqStmt: _Printer._sequence,
}
_EXPRESSIONS: dict[type, Callable[[_Printer, Any], str]] = {
    Call: _Printer._call,
    StringImm: lambda to, node: repr(str(node.value)),
    TensorLoad: lambda to, node: f"{to.name(node.source)}[{', '.join(map(to.expr, node.indices))}]",
    tirx.Cast: lambda to, node: f"{node.ty.dtype}({to.expr(node.value)})",
    tirx.Div: _Printer._div,
    tirx.FloatImm: _Printer._number,
    tirx.IntImm: _Printer._number,
    tirx.Max: lambda to, node: f"max({to.expr(node.a)}, {to.expr(node.b)})",
    tirx.Min: lambda to, node: f"min({to.expr(node.a)}, {to.expr(node.b)})",
    tirx.Not: lambda to, node: f"(not {to.expr(node.a)})",
    tirx.Select: lambda to, node: to.choice(node.condition, node.true_value, node.false_value),
}
