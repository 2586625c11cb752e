"""`tvm.tir.ir_builder`: statements written down one after the other.

ib = tvm.tir.ir_builder.create()
a = ib.buffer_ptr(A)
with ib.for_range(0, n, name="i") as i:
    a[i] = a[i] + 1
body = ib.get()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.ir import Expr, StringImm, is_prim_expr
from tvm.runtime import ObjectConvertible

from ..errors import ScheduleError

__all__ = ["BufferVar", "IRBuilder", "create"]

_KINDS = {
    "serial": tirx.ForKind.SERIAL,
    "parallel": tirx.ForKind.PARALLEL,
    "vectorize": tirx.ForKind.VECTORIZED,
    "unroll": tirx.ForKind.UNROLLED,
}


def create() -> IRBuilder:
    """A new builder."""
    return IRBuilder()


class BufferVar(ObjectConvertible):
    """A buffer whose elements are read and written by subscripts; one subscript is flat."""

    def __init__(self, builder: IRBuilder, buffer: Any) -> None:
        self._builder = builder
        self.buffer = buffer

    def asobject(self) -> Any:
        """The pointer, for calls."""
        return self.buffer.data

    @property
    def dtype(self) -> str:
        return str(self.buffer.dtype)

    def _indices(self, index: Any) -> list[Any]:
        indices = list(index) if isinstance(index, (tuple, list)) else [index]
        shape = list(self.buffer.shape)
        if len(indices) == 1 and len(shape) > 1:
            flat: list[Any] = []
            rest = indices[0]
            for extent in reversed(shape[1:]):
                flat.insert(0, tirx.indexmod(rest, extent))
                rest = tirx.indexdiv(rest, extent)
            return [rest, *flat]
        if len(indices) != len(shape):
            raise ScheduleError(
                f"ir_builder: {self.buffer.name} has {len(shape)} dimensions, not {len(indices)}"
            )
        return indices

    def __getitem__(self, index: Any) -> Any:
        return tirx.BufferLoad(self.buffer, self._indices(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        if not is_prim_expr(value):
            value = tirx.const(value, self.dtype)
        if str(value.ty.dtype) != self.dtype:
            raise ScheduleError(
                f"ir_builder: a {value.ty.dtype} can't be stored in {self.buffer.name}, which "
                f"holds {self.dtype}"
            )
        self._builder.emit(tirx.BufferStore(self.buffer, value, self._indices(index)))


class IRBuilder:
    """Collects statements; `get` makes one of them."""

    def __init__(self) -> None:
        self._open: list[list[Any]] = [[]]

    def emit(self, stmt: Any) -> None:
        """Add a statement, an expression to be evaluated, or a function from what follows."""
        if isinstance(stmt, Expr):
            stmt = tirx.Evaluate(stmt)
        if isinstance(stmt, tirx.Stmt) or callable(stmt):
            self._open[-1].append(stmt)
        else:
            raise ScheduleError(f"ir_builder: {stmt!r} is not a statement")

    def get(self) -> Any:
        """The statements as one."""
        if len(self._open) != 1:
            raise ScheduleError("ir_builder: get() inside of a scope")
        return _join(self._open[0])

    @contextmanager
    def _scope(self, close: Callable[[Any], Any], value: Any = None) -> Iterator[Any]:
        self._open.append([])
        yield value
        body = _join(self._open.pop())
        self.emit(close(body))

    def scope_attr(self, node: Any, attr_key: str, value: Any) -> None:
        """Put what follows in the scope of an attribute."""
        if attr_key == "thread_extent" and not is_prim_expr(value):
            value = tirx.const(value, "int32")
        elif isinstance(value, str):
            value = StringImm(value)
        self.emit(lambda body: tirx.AttrStmt(node, attr_key, value, body))

    def for_range(
        self,
        begin: Any,
        end: Any,
        name: str = "i",
        dtype: str | None = None,
        kind: str = "serial",
        for_type: str | None = None,
    ) -> Any:
        """A loop; `with` gives its variable. `for_type` is `kind` as TVM 0.7 spelled it."""
        kind = kind if for_type is None else for_type
        if kind not in _KINDS:
            raise ScheduleError(f"ir_builder: a loop is one of {', '.join(_KINDS)}, not {kind!r}")
        if dtype is None:
            dtype = str(end.ty.dtype) if is_prim_expr(end) else "int32"
        var = tirx.Var(name, dtype)
        begin = begin if is_prim_expr(begin) else tirx.const(begin, dtype)
        end = end if is_prim_expr(end) else tirx.const(end, dtype)
        extent = end if isinstance(begin, tirx.IntImm) and int(begin) == 0 else end - begin
        return self._scope(lambda body: tirx.For(var, begin, extent, _KINDS[kind], body), var)

    def while_loop(self, condition: Any) -> Any:
        """A loop while a condition holds."""
        return self._scope(lambda body: tirx.While(condition, body))

    def if_scope(self, cond: Any) -> Any:
        """Statements for the case that a condition holds."""
        return self._scope(lambda body: tirx.IfThenElse(cond, body, None))

    def else_scope(self) -> Any:
        """Statements for the case that the condition of the `if_scope` before does not hold."""
        before = self._open[-1][-1] if self._open[-1] else None
        if not isinstance(before, tirx.IfThenElse):
            raise ScheduleError("ir_builder: else_scope has to follow an if_scope")
        self._open[-1].pop()
        return self._scope(lambda body: tirx.IfThenElse(before.condition, before.then_case, body))

    def new_scope(self) -> Any:
        """Statements whose attributes and allocations end with them."""
        return self._scope(lambda body: body)

    def let(self, var_name: str, value: Any) -> Any:
        """A variable with a value, for what follows."""
        var = tirx.Var(var_name, str(value.ty.dtype))
        self.emit(tirx.Bind(var, value))
        return var

    def allocate(
        self,
        dtype: str,
        shape: Any,
        name: str = "buf",
        axis_separators: Any = None,
        scope: str = "",
    ) -> BufferVar:
        """A buffer for what follows."""
        shape = list(shape) if isinstance(shape, Sequence) else [shape]
        buffer = tirx.decl_buffer(shape, dtype, name, scope=scope, layout=None)
        self.emit(tirx.AllocBuffer(buffer))
        return BufferVar(self, buffer)

    def pointer(self, content_type: str, name: str = "ptr", scope: str = "") -> BufferVar:
        """A pointer to any number of elements, for a parameter of the function."""
        extent = tirx.Var(f"{name}_size", "int32")
        buffer = tirx.decl_buffer([extent], content_type, name, scope=scope, layout=None)
        return BufferVar(self, buffer)

    def buffer_ptr(self, buf: Any) -> BufferVar:
        """A buffer that is given."""
        return BufferVar(self, buf)

    def likely(self, expr: Any) -> Any:
        """Mark a condition as one that mostly holds."""
        return tirx.likely(expr)


def _join(statements: list[Any]) -> Any:
    """One statement; attributes take in what follows them."""
    from .te.dataflow import sequence

    joined: list[Any] = []
    for statement in reversed(statements):
        if isinstance(statement, tirx.Stmt):
            joined.insert(0, statement)
        else:
            joined = [statement(sequence(joined))]
    return sequence(joined)
