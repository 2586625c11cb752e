"""Run-time recursion and data: Relax functions that call themselves.

At run time, data is a tuple of the constructor's name, its tag and the fields. A recursive
function is specialized to its argument types; variables captured by closures become parameters.

A tail-recursive function is a loop. Its body becomes a step function, which returns (done, result)
or (not done, next arguments). Nested repetitions of the step keep the stack depth low enough for
4,000,000 iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from ...errors import RelayError
from ..expr import const
from ..type_infer import infer_type, set_type, with_symbolic_extents
from . import kinds, syntax
from .traversal import captured
from .values import (
    Again,
    Closure,
    Data,
    Environment,
    Handle,
    NoClause,
    NotTail,
    Reference,
    Step,
    check_is_no_step,
)

_REPEATS, _LEVELS = 16, 3
"""Repetitions per level and levels of a loop: it calls itself once per 16 ** 3 steps."""

_MOST_FORMS = 8
"""Maximum number of pending specializations of one recursive function."""


class RunTime:
    """Creates recursive functions and converts values to and from their run-time form.

    `scope`: converter that receives the bindings. `module`: module that defines the data types.
    """

    def __init__(self, scope: Any, module: syntax.Module) -> None:
        self.scope = scope
        self.source = module.source
        self.types = kinds.DataTypes(module)
        self._made: dict[Any, tvm.ir.GlobalVar] = {}
        self._pending: list[tuple[syntax.Function, int]] = []
        self._loops: list[tuple[Any, Any]] = []  # pending (key, result type); None: no loop
        self._tried: list[syntax.Function] = []
        self._results: dict[Any, syntax.Type] = {}

    def error(self, message: str) -> RelayError:
        return RelayError(f"{self.source}: {message}")

    def is_pending(self, function: syntax.Function) -> bool:
        """Whether a function's body is being converted, so that a call of it is recursive."""
        pending = [each for each, _ in self._pending]
        return any(each is function for each in (*pending, *self._tried))

    def call(self, name: str, called: Closure, arguments: list[Any]) -> Any:
        """Convert a call of a recursive function.

        Raises RelayError: the recursion is unconditional, changes its types at each level, or needs
        a declared result type.
        """
        function = called.function
        if (function, self.scope.branch_depth) in self._pending:
            raise self.error(f"the recursion of {name} never ends")
        if any(each is function for each in self._tried):
            raise NoClause(f"{self.source}: what {name} returns depends on itself alone")
        variables = self.types.of_call(function, arguments)
        result = kinds.substituted(function.result, variables)
        packing = _Packing(self)
        forms = [packing.closure(called)]
        for var, value in zip(function.parameters, arguments):
            forms.append(packing.value(value, self.types.declared(var.type, value, variables)))
        key = (function, _key(forms))
        if self._loops and self._loops[-1][0] == key:
            return Again(packing.leaves)
        if not self.types.is_complete(result):
            result = self._found_result(name, function, forms, packing.types, key)
        if key not in self._made:
            self._make(name, function, forms, packing.types, result, key)
        return self.opened(self._called(self._made[key], packing.leaves), result)

    def _make(
        self,
        name: str,
        function: syntax.Function,
        forms: list[Any],
        types: list[syntax.Type],
        result: syntax.Type,
        key: Any,
    ) -> None:
        if sum(each is function for each, _ in self._pending) >= _MOST_FORMS:
            raise self.error(
                f"{name} calls itself with other shapes each time; a parameter "
                "whose extents change declares them as `?`"
            )
        parameters = self._parameters(types)
        returned = self.types.in_relax(result)
        gvar = self._made[key] = self._global(name, parameters, returned)

        def value() -> Any:
            return self._value(function, forms, parameters, types)

        self._pending.append((function, self.scope.branch_depth))
        try:
            self._loops.append((key, result))
            try:
                step = self._global(f"{name}_step", parameters, relax.AnyType())
                self._add(step, parameters, lambda: self.step(value()))
                self._add_loop(gvar, step, types, returned)
            except NotTail:
                self._loops[-1] = (None, None)
                self._add(gvar, parameters, lambda: self.lowered(value(), result))
            finally:
                self._loops.pop()
        except RelayError:
            del self._made[key]
            raise
        finally:
            self._pending.pop()

    def _value(
        self,
        function: syntax.Function,
        forms: list[Any],
        parameters: list[relax.Var],
        types: list[syntax.Type],
    ) -> Any:
        """Evaluate a function's body on parameters with these types and forms."""
        given = iter([self.opened(var, kind) for var, kind in zip(parameters, types)])
        known: list[Environment] = []
        closure, *values = (_unpacked(form, given, known) for form in forms)
        env = closure.env.child()
        for var, value in zip(function.parameters, values):
            env.bind(var, value)
        return self.scope.block(function.body, env)

    def _found_result(
        self,
        name: str,
        function: syntax.Function,
        forms: list[Any],
        types: list[syntax.Type],
        key: Any,
    ) -> syntax.Type:
        """Infer an undeclared result type from the branches without recursion."""
        if key not in self._results:
            parameters = self._parameters(types)
            self._tried.append(function)
            try:
                value = self.scope.tried(lambda: self._value(function, forms, parameters, types))
            finally:
                self._tried.pop()
            self._results[key] = self.types.of(value)
        if not self.types.is_complete(self._results[key]):
            raise self.error(f"{name} calls itself and does not say what it returns")
        return self._results[key]

    def _parameters(self, types: list[syntax.Type]) -> list[relax.Var]:
        named = [self.types.in_relax(kind, named=True) for kind in types]
        return [relax.Var(f"p{place}", ty) for place, ty in enumerate(named)]

    def _global(self, name: str, parameters: list[relax.Var], returned: Any) -> tvm.ir.GlobalVar:
        ty = relax.FuncType([var.ty for var in parameters], returned)
        return self.scope.new_global(name, ty)

    def _add(
        self,
        gvar: tvm.ir.GlobalVar,
        parameters: list[relax.Var],
        evaluate: Callable[[], relax.Expr],
    ) -> None:
        returned = gvar.ty.ret
        body = lambda: self._cast(evaluate(), returned)  # noqa: E731
        self.scope.add_function(gvar, parameters, body, returned)

    # Loops.

    def step(self, value: Any) -> relax.Expr:
        """Result of a step: (done, result) or (not done, next arguments)."""
        if isinstance(value, Step):
            return value.expr
        if isinstance(value, Again):
            return self._state(False, value.arguments)
        return self._state(True, [self.lowered(value, self._loops[-1][1])])

    def _state(self, is_done: bool, values: list[relax.Expr]) -> relax.Expr:
        whole = infer_type(relax.Tuple([const(is_done, "bool"), *values]))
        return self._cast(self.scope.bind(whole), relax.AnyType())

    def _add_loop(
        self,
        gvar: tvm.ir.GlobalVar,
        step: tvm.ir.GlobalVar,
        types: list[syntax.Type],
        returned: Any,
    ) -> None:
        """Add the function that repeats a step until it is done."""

        def once(state: relax.Expr) -> relax.Expr:
            fields = [
                self._item(state, place, self.types.in_relax(kind))
                for place, kind in enumerate(types, 1)
            ]
            return self._called(step, fields)

        repeated = self._unless_done(f"{step.name_hint}_0", once)
        for level in range(1, _LEVELS + 1):
            endless = level == _LEVELS
            name = f"{step.name_hint}_{level}"
            repeated = self._unless_done(name, self._repeat(repeated), endless)
        parameters = self._parameters(types)

        def loop() -> relax.Expr:
            last = self._called(repeated, [self._state(False, list(parameters))])
            return self._item(last, 1, returned)

        self._add(gvar, parameters, loop)

    def _repeat(self, function: tvm.ir.GlobalVar) -> Callable[[relax.Expr], relax.Expr]:
        def repeat(state: relax.Expr) -> relax.Expr:
            for _ in range(_REPEATS):
                state = self._called(function, [state])
            return state

        return repeat

    def _unless_done(
        self, name: str, go_on: Callable[[relax.Expr], relax.Expr], endless: bool = False
    ) -> tvm.ir.GlobalVar:
        """Function that advances any state but a final one; with `endless`, it calls itself."""
        state = relax.Var("state", relax.AnyType())
        gvar = self._global(f"@{name}", [state], state.ty)

        def evaluate() -> relax.Expr:
            is_done = self._item(state, 0, relax.TensorType((), "bool"))
            return self.scope.branches(is_done, lambda: state, others)

        def others() -> relax.Expr:
            found = go_on(state)
            return self._called(gvar, [found]) if endless else found

        self._add(gvar, [state], evaluate)
        return gvar

    def _called(self, function: tvm.ir.GlobalVar, arguments: list[relax.Expr]) -> relax.Expr:
        call = set_type(relax.Call(function, arguments), function.ty.ret)
        return self.scope.bind(call)

    # Run-time representation of values.

    def lowered(self, value: Any, kind: Any) -> relax.Expr:
        """Convert a value to one expression of a type."""
        check_is_no_step(value)
        if isinstance(value, Handle):
            return value.expr
        if isinstance(value, Data):
            return self._data(value, kind)
        if isinstance(value, list):
            fields = [self.lowered(*pair) for pair in zip(value, kind.fields)]
            return self.scope.bind(infer_type(relax.Tuple(fields)))
        if not isinstance(value, relax.Expr):
            raise self.error(
                "functions and references can't be part of data that is known only at run time"
            )
        return value

    def _data(self, value: Data, kind: Any) -> relax.Expr:
        number, types = self.types.constructor(value.constructor, kind)
        fields = [self.lowered(*pair) for pair in zip(value.fields, types)]
        name = tvm.ir.StringImm(value.constructor)
        whole = infer_type(relax.Tuple([name, const(number, "int32"), *fields]))
        return self._cast(self.scope.bind(whole), relax.AnyType())

    def _cast(self, expr: relax.Expr, ty: Any) -> relax.Expr:
        same = tvm_ffi.structural_equal(expr.ty, ty)
        return expr if same else self.scope.cast(expr, ty)

    def opened(self, expr: relax.Expr, kind: Any) -> Any:
        """Wrap an expression of a type as a value; unknown extents become symbolic."""
        if isinstance(kind, syntax.NamedType):
            return Handle(expr, kind)
        if isinstance(kind, syntax.TupleType):
            fields = [
                self.scope.bind(infer_type(relax.TupleGetItem(expr, index)))
                for index in range(len(kind.fields))
            ]
            return [self.opened(*pair) for pair in zip(fields, kind.fields)]
        return self._cast(expr, with_symbolic_extents(expr).ty)

    def has_constructor(self, handle: Handle, name: str) -> relax.Expr | None:
        """Compare the constructor of data, as a bool scalar; None if its type has only this one."""
        number, _ = self.types.constructor(name, handle.type)
        if len(self.types.constructors(handle.type)) == 1:
            return None
        tag = self._item(handle.expr, 1, relax.TensorType((), "int32"))
        return self.scope.call_operator("equal", [tag, const(number, "int32")], {})

    def field(self, handle: Handle, name: str, index: int) -> Any:
        """Get a field of data with this constructor."""
        kind = self.types.constructor(name, handle.type)[1][index]
        if not self.types.is_complete(kind):
            raise self.error(
                f"the type of a field of {name} is unknown, because its data is "
                "created at run time; declare the result types of the functions that create it"
            )
        return self.opened(self._item(handle.expr, index + 2, self.types.in_relax(kind)), kind)

    def _item(self, expr: relax.Expr, index: int, ty: Any) -> relax.Expr:
        place = tirx.IntImm("int64", index)
        call = set_type(
            relax.op.call_pure_packed("vm.builtin.tuple_getitem", expr, place, ty_args=[ty]), ty
        )
        return self.scope.bind(call)

    def outer_reference(self) -> RelayError:
        """Create the error for a run-time function that uses a reference from an outer scope."""
        return self.error(
            "a recursion that depends on values known only at run time uses a "
            "reference that was made outside of it; pass and return the value instead"
        )

    def common(self, one: Any, other: Any) -> syntax.NamedType | None:
        """Common data type of two values; None if it is not a data type."""
        kind = kinds.joined(self.types.of(one), self.types.of(other))
        return kind if isinstance(kind, syntax.NamedType) else None


class _Packing:
    """Flattens arguments of a run-time call; forms describe how to rebuild the values."""

    def __init__(self, run_time: RunTime) -> None:
        self.run_time = run_time
        self.leaves: list[relax.Expr] = []
        self.types: list[syntax.Type] = []
        self._closures: list[Environment] = []

    def value(self, value: Any, kind: syntax.Type) -> Any:
        if isinstance(value, Closure):
            return self.closure(value)
        if isinstance(value, (syntax.Global, syntax.Constructor)):
            return (type(value), value.name)
        if isinstance(value, Reference):
            raise self.run_time.outer_reference()
        if isinstance(value, list) and isinstance(kind, syntax.TupleType):
            return ("tuple", [self.value(*pair) for pair in zip(value, kind.fields)])
        if not self.run_time.types.is_complete(kind):
            raise self.run_time.error("an argument of a recursion has no type")
        self.leaves.append(self.run_time.lowered(value, kind))
        self.types.append(kind)
        return ("argument", kind)

    def closure(self, closure: Closure) -> Any:
        """Describe a closure by its function and captured variables."""
        for number, env in enumerate(self._closures):
            if env is closure.env:
                return ("closure again", closure.function, number)
        self._closures.append(closure.env)
        found = []
        for var, value in captured(closure.function, closure.env):
            found.append((var, self.value(value, self.run_time.types.of(value))))
        return ("closure", closure.function, found)


def _unpacked(form: Any, given: Iterator[Any], known: list[Environment]) -> Any:
    """Rebuild a value from its form and the parameters of the run-time function."""
    kind, *parts = form
    if kind == "argument":
        return next(given)
    if kind == "tuple":
        return [_unpacked(each, given, known) for each in parts[0]]
    if kind == "closure again":
        return Closure(parts[0], known[parts[1]])
    if kind != "closure":
        return kind(*parts)
    env = Environment()
    known.append(env)
    for var, value in parts[1]:
        env.bind(var, _unpacked(value, given, known))
    return Closure(parts[0], env)


def _key(form: Any) -> Any:
    """Hashable key of a form; types are compared by their text."""
    if isinstance(form, (list, tuple)):
        return tuple(map(_key, form))
    is_type = isinstance(form, (syntax.TensorType, syntax.TupleType, syntax.NamedType))
    return repr(form) if is_type else form
