"""`relay.ScopeBuilder`: build lets and conditions in program order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..errors import RelayError
from .expr import If, Let, as_expr, var
from .type_infer import infer_type, infer_type_if_possible


@dataclass
class _Scope:
    """Bindings and result of a scope; `pending` is an `if` whose `else` is still missing."""

    bindings: list[tuple[Any, Any]] = field(default_factory=list)
    result: Any = None
    pending: tuple[Any, Any] | None = None

    def value(self) -> Any:
        if self.pending is not None:
            raise RelayError("ScopeBuilder: an if_scope has no else_scope")
        if self.result is None:
            raise RelayError("ScopeBuilder: ret was not called in this scope")
        made = self.result
        for variable, value in reversed(self.bindings):
            made = Let(variable, value, made)
        return made


class ScopeBuilder:
    """Builds nested lets and conditions in program order.

    sb = relay.ScopeBuilder()
    with sb.if_scope(cond):
        y = sb.let("y", relay.add(x, x))
        sb.ret(y)
    with sb.else_scope():
        sb.ret(x)
    func = relay.Function([cond, x], sb.get())
    """

    def __init__(self) -> None:
        self._scopes = [_Scope()]

    def let(self, var_or_name: Any, value: Any) -> Any:
        """Bind a value to a variable, a name, or a name with a type; returns the variable."""
        value = infer_type_if_possible(as_expr(value))
        known = None if value.ty.is_missing() else value.ty
        if isinstance(var_or_name, str):
            var_or_name = var(var_or_name, known)
        elif isinstance(var_or_name, Sequence):
            name, *declared = var_or_name
            var_or_name = var(name, *declared) if declared else var(name, known)
        self._scopes[-1].bindings.append((var_or_name, value))
        return var_or_name

    @contextmanager
    def if_scope(self, cond: Any) -> Iterator[None]:
        """Open the scope of the true branch; `else_scope` must follow."""
        self._scopes.append(_Scope())
        yield
        branch = self._scopes.pop().value()
        scope = self._scopes[-1]
        if scope.result is not None or scope.pending is not None:
            raise RelayError("ScopeBuilder: the scope has its result already, before this if_scope")
        scope.pending = (cond, branch)

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """Open the scope of the false branch."""
        self._scopes.append(_Scope())
        yield
        branch = self._scopes.pop().value()
        scope = self._scopes[-1]
        if scope.pending is None:
            raise RelayError("ScopeBuilder: else_scope must follow an if_scope")
        cond, true_branch = scope.pending
        scope.pending = None
        scope.result = If(cond, true_branch, branch)

    def type_of(self, expr: Any) -> Any:
        """The type of an expression."""
        return infer_type(as_expr(expr)).ty

    def ret(self, value: Any) -> None:
        """Set the result of this scope."""
        scope = self._scopes[-1]
        if scope.result is not None or scope.pending is not None:
            raise RelayError("ScopeBuilder: the result of this scope is set already")
        scope.result = value

    def get(self) -> Any:
        """Return the complete expression."""
        if len(self._scopes) != 1:
            raise RelayError("ScopeBuilder: get must be called outside of all scopes")
        return self._scopes[-1].value()
