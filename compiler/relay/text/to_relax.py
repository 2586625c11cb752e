"""Convert a Relay program to a Relax module with Relay operators.

Functions, tuples and conditions are converted directly. Features that Relax lacks (algebraic data
types, references, first-class functions) are partially evaluated: only operators on tensors remain.
"""

from __future__ import annotations

import collections
import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax

from ...errors import RelayError
from .. import dialect
from ..expr import const
from ..type_infer import infer_type, set_type, type_of
from . import syntax
from .folding import fold
from .kinds import RESULT_FORM, relax_type
from .lexer import naming_place
from .recursion import RunTime
from .traversal import calls_itself, deep, is_straight
from .values import (
    Again,
    Closure,
    Data,
    Environment,
    Handle,
    NoClause,
    Reference,
    Step,
    check_is_no_step,
    is_plain,
    leaf_count,
    rebuild,
    structure,
)

_MAX_CALLS = 300
"""Call depth at which an evaluation is assumed not to terminate."""


def to_relax(
    module: syntax.Module, known: tvm.IRModule | None = None, entries: Sequence[str] = ("main",)
) -> tvm.IRModule:
    """Convert the program to a Relax module.

    `entries` and all other functions over tensors become Relax functions. Other functions are
    evaluated where they are called. `known` functions may be called and are included in the result.
    Raises RelayError: something is neither a tensor computation nor can be evaluated at compile
    time. RelayTypeError, UnsupportedRelayOperatorError: an operator does not fit its operands; the
    error contains the position of the call.
    """
    with deep():
        return _Converter(module, known).convert(entries)


class _Converter:
    def __init__(self, module: syntax.Module, known: tvm.IRModule | None) -> None:
        self.module = module
        self.known = known
        self.bindings: list[Any] = []
        self.constants: dict[int, Any] = {}
        self.types: dict[tuple[Any, ...], Any] = {}
        self.globals: dict[str, Any] = {}
        self.unfinished: dict[str, list[relax.Var]] = {}
        self.made: dict[Any, Any] = {}
        self.cells: list[Reference] = []
        self.active: list[syntax.Function] = []
        self.run_time = RunTime(self, module)
        self.recursive: set[str] = set()
        self.outer_cells = 0
        self.branch_depth = 0
        self.returned: Any = None
        self.fields = {
            name: kinds
            for each in module.types.values()
            for name, kinds in each.constructors.items()
        }
        self.is_straight = all(map(is_straight, module.functions.values()))
        self.evaluates = bool(module.types) or any(map(calls_itself, module.functions.items()))

    def error(self, message: str) -> RelayError:
        return RelayError(f"{self.module.source}: {message}")

    def convert(self, entries: Sequence[str]) -> tvm.IRModule:
        for name, function in self.module.functions.items():
            if name in entries or (self._over_tensors(function) and not self.evaluates):
                self.function_of(name)
        mod = tvm.IRModule(self.made)
        if self.is_straight and self.known is None:
            return mod
        if self.known is not None:
            for gvar, function in self.known.functions_items():
                if gvar.name_hint not in self.module.functions:
                    mod[self.globals.get(gvar.name_hint, gvar)] = function
        return relax.transform.ConvertToDataflow(min_size=1)(mod)

    # Module functions.

    def _over_tensors(self, function: syntax.Function) -> bool:
        if function.type_params:
            return False
        return all(relax_type(var.type) is not None for var in function.parameters)

    def function_of(self, name: str) -> Any:
        """Global variable of a function; the function is converted on first use."""
        if name not in self.globals:
            function = self.module.functions[name]
            parameters = [self._parameter(name, var) for var in function.parameters]
            gvar = self.globals[name] = tvm.ir.GlobalVar(name)
            self.unfinished[name] = parameters
            made = self._function(function, parameters, Environment())
            del self.unfinished[name]
            attrs = {"global_symbol": name} if name == "main" else {}
            form = self.run_time.types.form_of(self.returned)
            if form is not None:
                attrs[RESULT_FORM] = json.dumps(form)
            attrs.update(function.attributes)
            made = made.with_attrs(attrs) if attrs else made
            if gvar.ty.is_missing():
                set_type(gvar, relax.FuncType([var.ty for var in made.params], made.ret_ty))
            self.made[gvar] = made
        elif name in self.unfinished and self.globals[name].ty.is_missing():
            self._declare(name)
        return self.globals[name]

    def _declare(self, name: str) -> None:
        """Give a recursive function its declared type."""
        result = relax_type(self.module.functions[name].result, named=False)
        if result is None:
            raise self.error(f"@{name} calls itself and does not say what it returns")
        parameters = [var.ty for var in self.unfinished[name]]
        set_type(self.globals[name], relax.FuncType(parameters, result))

    def _parameter(self, name: str, var: syntax.Var) -> relax.Var:
        ty = self._parameter_type(var.type)
        if ty is None and var.type is not None and not isinstance(var.type, syntax.UnknownType):
            raise self.error(
                f"parameter %{var.name} of @{name} is neither a tensor nor "
                "a tuple; functions and data types can't cross the border of a compiled function"
            )
        return relax.Var(var.name, ty)

    def _parameter_type(self, kind: syntax.Type | None) -> Any:
        """Convert a parameter type; equal static types share one object for the inference cache."""
        if isinstance(kind, syntax.TensorType) and None not in kind.shape:
            key = (kind.shape, kind.dtype)
            if key not in self.types:
                self.types[key] = relax_type(kind)
            return self.types[key]
        return relax_type(kind)

    def _function(
        self, function: syntax.Function, parameters: list[relax.Var], outer: Environment
    ) -> relax.Function:
        env = outer.child()
        for var, value in zip(function.parameters, parameters):
            env.bind(var, value)

        def evaluate() -> Any:
            self.returned = None
            found = self.block(function.body, env)
            self.returned = found
            return found

        body = self.dataflow(evaluate) if self.is_straight else self.sequence(evaluate)
        for var in parameters:
            if var.ty.is_missing():
                raise self.error(
                    f"parameter %{var.name} has no type, and no operator says what it must be"
                )
        return relax.Function(parameters, body, body.ty)

    # Scopes.

    def sequence(
        self, evaluate: Callable[[], Any], bindings: list[Any] | None = None
    ) -> relax.SeqExpr:
        """Build a scope from the given bindings and those created by `evaluate()`."""
        outer, self.bindings = self.bindings, bindings or []
        try:
            result = self.plain(evaluate())
            blocks = [relax.BindingBlock(self.bindings)] if self.bindings else []
        finally:
            self.bindings = outer
        return set_type(relax.SeqExpr(blocks, result), result.ty)

    def dataflow(self, evaluate: Callable[[], Any]) -> relax.SeqExpr:
        """Build a body without conditions and function calls as one dataflow block."""
        result = self.plain(evaluate())
        output = relax.Var("gv", result.ty)
        block = relax.DataflowBlock([*self.bindings, relax.VarBinding(output, result)])
        self.bindings = []
        return set_type(relax.SeqExpr([block], output), output.ty)

    def bind(self, value: relax.Expr, name: str = "lv") -> relax.Var:
        var = (relax.DataflowVar if self.is_straight else relax.Var)(name, value.ty)
        self.bindings.append(relax.VarBinding(var, value))
        return var

    def plain(self, value: Any) -> relax.Expr:
        """Convert a value to an expression; data becomes a tuple of its fields."""
        if isinstance(value, (list, Data)):
            fields = value if isinstance(value, list) else value.fields
            return infer_type(relax.Tuple([self.plain(field) for field in fields]))
        if isinstance(value, Reference):
            return self.plain(value.value)
        if isinstance(value, Handle):
            return value.expr
        check_is_no_step(value)
        if not isinstance(value, relax.Expr):
            raise self.error("a function can't be a result or the operand of an operator")
        return value

    # Evaluation. A value is an expression, a list for a tuple, or one of `values`.

    def block(self, block: syntax.Block, env: Environment) -> Any:
        for var, value in block.bindings:
            self._binding(var, value, env)
        return self.value(block.result, env)

    def _binding(self, var: syntax.Var, value: syntax.Expr, env: Environment) -> None:
        if isinstance(value, syntax.Function):
            env.bind(var, Closure(value, env))
            return
        found = self.value(value, env)
        last = self.bindings[-1] if self.bindings else None
        if var.number is None and last is not None and last.var is found:
            named = (relax.DataflowVar if self.is_straight else relax.Var)(var.name, found.ty)
            self.bindings[-1] = relax.VarBinding(named, last.value)
            found = named
        env.bind(var, found)

    def value(self, expr: syntax.Expr, env: Environment) -> Any:
        if isinstance(expr, syntax.Call):
            return self.call(expr, env)
        if isinstance(expr, syntax.Var):
            return self.variable(expr, env)
        if isinstance(expr, syntax.Constant):
            return self.constant(expr)
        if isinstance(expr, syntax.Tuple):
            return [self.value(field, env) for field in expr.fields]
        if isinstance(expr, syntax.Field):
            return self.field(expr, env)
        if isinstance(expr, syntax.If):
            return self.conditional(expr, env)
        if isinstance(expr, syntax.Function):
            return Closure(expr, env)
        if isinstance(expr, syntax.Global):
            return expr
        if isinstance(expr, syntax.Block):
            return self.block(expr, env.child())
        if isinstance(expr, syntax.Constructor):
            return expr if self.fields.get(expr.name) else Data(expr.name, [])
        if isinstance(expr, syntax.Match):
            return self.match(expr, env)
        return self.reference(expr, env)

    def variable(self, var: syntax.Var, env: Environment) -> Any:
        found = env.lookup(var)
        if found is None:
            if var.definition is None:
                raise self.error(f"the variable %{var.name} is not bound")
            found = self.value(var.definition, env)
        return found

    def constant(self, constant: syntax.Constant) -> Any:
        if id(constant) not in self.constants:
            self.constants[id(constant)] = const(constant.value, str(constant.value.dtype))
        return self.constants[id(constant)]

    def field(self, expr: syntax.Field, env: Environment) -> Any:
        whole = self.value(expr.tuple, env)
        if isinstance(whole, list):
            if expr.index >= len(whole):
                raise self.error(f"field {expr.index} of a tuple of {len(whole)} fields")
            return whole[expr.index]
        if isinstance(whole, relax.Expr):
            return self.bind(infer_type(relax.TupleGetItem(whole, expr.index)))
        check_is_no_step(whole)
        raise self.error(f"field {expr.index} of what is not a tuple")

    # Calls.

    def call(self, expr: syntax.Call, env: Environment) -> Any:
        called = expr.function
        if isinstance(called, syntax.Op):
            return self.operator(called.name, expr, env)
        if isinstance(called, syntax.Constructor):
            fields = [self.value(argument, env) for argument in expr.arguments]
            wanted = len(self.fields.get(called.name, ()))
            if len(fields) != wanted:
                raise self.error(f"the constructor {called.name} has {wanted} fields")
            return self.data(called.name, fields)
        function = self.value(called, env)
        return self.apply(function, [self.value(argument, env) for argument in expr.arguments])

    def data(self, constructor: str, fields: list[Any]) -> Data:
        """Construct data; untyped parameters get the declared field types."""
        for field, kind in zip(fields, self.fields[constructor]):
            self._tell(field, kind)
        return Data(constructor, fields)

    def _tell(self, value: Any, kind: syntax.Type | None) -> None:
        """Give an untyped parameter the type declared by the callee it is passed to."""
        if isinstance(value, relax.Var) and value.ty.is_missing():
            ty = relax_type(kind)
            if ty is not None:
                set_type(value, ty)

    def operator(self, name: str, expr: syntax.Call, env: Environment) -> Any:
        operands = [self.plain(self.value(argument, env)) for argument in expr.arguments]
        with naming_place(self.module.source, self.module.text, expr.position):
            return self.call_operator(name, operands, expr.attributes)

    def call_operator(
        self, name: str, operands: list[relax.Expr], attributes: dict[str, Any]
    ) -> relax.Expr:
        """Bind an operator call to a variable, or fold it to a constant."""
        folded = fold(name, operands, attributes) if self.evaluates else None
        return self.bind(dialect.call(name, operands, attributes)) if folded is None else folded

    def apply(self, function: Any, arguments: list[Any]) -> Any:
        if isinstance(function, syntax.Global):
            return self._apply_global(function.name, arguments)
        if isinstance(function, syntax.Constructor):
            return self.data(function.name, arguments)
        if not isinstance(function, Closure):
            raise self.error("the callee is not a function")
        if function.function.attributes and all(map(is_plain, arguments)):
            return self._call_local(function, arguments)
        return self._evaluated("a function", function, arguments)

    def _call_local(self, function: Closure, arguments: list[Any]) -> Any:
        """Call a function with attributes, such as a composite, without inlining it."""
        operands = [self.plain(argument) for argument in arguments]
        parameters = [
            relax.Var(var.name, operand.ty)
            for var, operand in zip(function.function.parameters, operands)
        ]
        if len(parameters) != len(function.function.parameters):
            raise self.error("a function is called with too few arguments")
        made = self._function(function.function, parameters, function.env)
        made = made.with_attrs(function.function.attributes)
        return self.bind(infer_type(relax.Call(self.bind(made), operands)))

    def _apply_global(self, name: str, arguments: list[Any]) -> Any:
        function = self.module.functions.get(name)
        if function is None:
            return self._call_known(name, arguments)
        compiled = self._over_tensors(function) and all(map(is_plain, arguments))
        if not compiled or (self.evaluates and name not in self.globals):
            return self._evaluated(f"@{name}", Closure(function, Environment()), arguments)
        gvar = self.function_of(name)
        operands = [self.plain(argument) for argument in arguments]
        if len(operands) != len(function.parameters):
            raise self.error(
                f"@{name} takes {len(function.parameters)} arguments, got {len(operands)}"
            )
        return self.bind(infer_type(relax.Call(gvar, operands)))

    def _call_known(self, name: str, arguments: list[Any]) -> Any:
        names = [] if self.known is None else [g.name_hint for g in self.known.get_global_vars()]
        if self.known is None or name not in names:
            raise self.error(f"unknown function @{name}")
        gvar = self.globals.setdefault(name, self.known.get_global_var(name))
        return self.bind(infer_type(relax.Call(gvar, [self.plain(each) for each in arguments])))

    def _evaluated(self, name: str, called: Closure, arguments: list[Any]) -> Any:
        """Evaluate a call at compile time; if that does not terminate, at run time."""
        function = called.function
        if len(arguments) != len(function.parameters):
            raise self.error(
                f"a function of {len(function.parameters)} parameters is "
                f"called with {len(arguments)} arguments"
            )
        if self.run_time.is_pending(function):
            return self.run_time.call(name, called, arguments)
        if any(each is function for each in self.active):
            return self._inline(called, arguments)
        bindings, cells = list(self.bindings), [(cell, cell.value) for cell in self.cells]
        try:
            return self._inline(called, arguments)
        except _Endless as found:
            if found.function is not function:
                raise
        self.bindings[:] = bindings
        self.cells = [cell for cell, _ in cells]
        for cell, value in cells:
            cell.value = value
        return self.run_time.call(name, called, arguments)

    def _inline(self, called: Closure, arguments: list[Any]) -> Any:
        if len(self.active) >= _MAX_CALLS:
            raise _Endless(max(self.active, key=collections.Counter(self.active).__getitem__))
        inner = called.env.child()
        for var, value in zip(called.function.parameters, arguments):
            self._tell(value, var.type)
            inner.bind(var, value)
        self.active.append(called.function)
        try:
            return self.block(called.function.body, inner)
        finally:
            self.active.pop()

    # Interface used by `RunTime`.

    def new_global(self, name: str, ty: relax.FuncType) -> tvm.ir.GlobalVar:
        """Create a private function's variable with a unique name."""
        own = name.removeprefix("@") if name.startswith("@") else None
        names = itertools.chain(
            [own or "recursion"], map(f"{own or 'recursion'}_{{}}".format, itertools.count(1))
        )
        free = next(
            each
            for each in names
            if each not in self.recursive and (each == own or each not in self.module.functions)
        )
        self.recursive.add(free)
        return set_type(tvm.ir.GlobalVar(free), ty)

    def add_function(
        self,
        gvar: tvm.ir.GlobalVar,
        parameters: list[relax.Var],
        evaluate: Callable[[], relax.Expr],
        returned: Any,
    ) -> None:
        """Add a function with the body that `evaluate()` builds."""
        active, self.active = self.active, []
        outer, self.outer_cells = self.outer_cells, len(self.cells)
        try:
            self.made[gvar] = relax.Function(parameters, self.sequence(evaluate), returned)
        finally:
            self.active, self.outer_cells = active, outer

    def tried(self, evaluate: Callable[[], Any]) -> Any:
        """Return the value of `evaluate()` and discard its bindings and effects."""
        cells, values = list(self.cells), [cell.value for cell in self.cells]
        kept = self.bindings, self.active, self.outer_cells
        self.bindings, self.active, self.outer_cells = [], [], len(self.cells)
        try:
            return evaluate()
        finally:
            self.bindings, self.active, self.outer_cells = kept
            self.cells = cells
            self._restore(values)

    def cast(self, value: relax.Expr, ty: Any) -> relax.Var:
        """Match-cast a value to a type that is checked at run time."""
        var = relax.Var("lv", ty)
        self.bindings.append(relax.MatchCast(var, value, ty))
        return var

    # Conditions, data and references.

    def conditional(self, expr: syntax.If, env: Environment) -> Any:
        condition = self.value(expr.condition, env)
        if isinstance(condition, tvm.ir.GenericConst):
            chosen = bool(condition.value.numpy())
            return self.block(expr.then if chosen else expr.otherwise, env.child())
        condition = self.plain(condition)
        if type_of(condition) != "Tensor[(), bool]":
            raise self.error(
                f"the condition of an `if` is a scalar of bool, not {type_of(condition)}"
            )
        return self.branches(
            condition,
            lambda: self.block(expr.then, env.child()),
            lambda: self.block(expr.otherwise, env.child()),
        )

    def branches(
        self, condition: relax.Expr, then: Callable[[], Any], otherwise: Callable[[], Any]
    ) -> Any:
        """Convert a condition that is known only at run time; return the value of the `if`."""
        before = [cell.value for cell in self.cells]
        states: list[list[Any]] = []
        bindings: list[list[Any]] = []
        branches = (then, otherwise)
        for place, branch in enumerate(branches):
            try:
                state, made = self._branch(branch, before)
            except NoClause:  # unreachable: no clause matches in this branch
                self._restore(before)
                return branches[1 - place]()
            states.append(state)
            bindings.append(made)
        forms = [self._joined(one, other) for one, other in zip(*states)]
        sequences = [self._closed(state, forms, made) for state, made in zip(states, bindings)]
        chosen = set_type(
            relax.If(condition, *sequences),
            relax.analysis.type_lca(sequences[0].ty, sequences[1].ty),
        )
        leaves = self._fields_of(self.bind(chosen), sum(map(leaf_count, forms)))
        result, *cells = (rebuild(form, leaves) for form in forms)
        self._restore(cells)
        return result

    def _branch(self, evaluate: Callable[[], Any], cells: list[Any]) -> tuple[list[Any], list[Any]]:
        """Evaluate a branch; return its value, the final reference cells, and its bindings."""
        self._restore(cells)
        outer, self.bindings = self.bindings, []
        self.branch_depth += 1
        try:
            result = evaluate()
            return [result, *(cell.value for cell in self.cells[: len(cells)])], self.bindings
        finally:
            self.bindings = outer
            self.branch_depth -= 1

    def _closed(self, state: list[Any], forms: list[Any], made: list[Any]) -> relax.SeqExpr:
        """Build a branch as a scope that returns its values in these forms."""
        return _only_field(self.sequence(lambda: self._leaves(list(zip(state, forms))), made))

    def _restore(self, cells: list[Any]) -> None:
        for cell, value in zip(self.cells, cells):
            cell.value = value

    def _joined(self, one: Any, other: Any) -> Any:
        """Common form of two branch values: compile-time structure, or run-time data."""
        forms = structure(one)[0], structure(other)[0]
        if forms[0] == forms[1]:
            return forms[0]
        if any(isinstance(each, (Again, Step)) for each in (one, other)):
            return ("step",)
        if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            return ("tuple", tuple(self._joined(*pair) for pair in zip(one, other)))
        kind = self.run_time.common(one, other)
        if kind is None:
            raise self.error(
                "the branches of an `if` on a value that is known only at "
                "run time return different data or functions"
            )
        return ("handle", kind)

    def _leaves(self, pairs: list[tuple[Any, Any]]) -> list[relax.Expr]:
        """Tensors and run-time data of values in the given forms."""
        found: list[relax.Expr] = []
        for value, form in pairs:
            if form[0] == "handle":
                found.append(self.run_time.lowered(value, form[1]))
            elif form[0] == "step":
                found.append(self.run_time.step(value))
            elif form[0] == "tuple":
                found += self._leaves(list(zip(value, form[1])))
            else:
                found += structure(value)[1]
        return found

    def _fields_of(self, bound: relax.Var, count: int) -> list[relax.Expr]:
        if count == 1:
            return [bound]
        return [self.bind(infer_type(relax.TupleGetItem(bound, index))) for index in range(count)]

    def match(self, expr: syntax.Match, env: Environment) -> Any:
        return self._first_clause(expr.clauses, self.value(expr.value, env), env)

    def _first_clause(self, clauses: list[syntax.Clause], value: Any, env: Environment) -> Any:
        if not clauses:
            found = value.constructor if isinstance(value, Data) else "the value"
            raise NoClause(f"{self.module.source}: no clause of a `match` fits {found}")
        inner = env.child()
        return self._where(
            [(clauses[0].pattern, value)],
            inner,
            lambda: self.block(clauses[0].body, inner),
            lambda: self._first_clause(clauses[1:], value, env),
        )

    def _where(
        self,
        pairs: list[tuple[syntax.Pattern, Any]],
        env: Environment,
        fits: Callable[[], Any],
        fails: Callable[[], Any],
    ) -> Any:
        """`fits()` with bound variables, or `fails()`; run-time constructors become conditions."""
        if not pairs:
            return fits()
        (pattern, value), *left = pairs
        if isinstance(pattern, syntax.VarPattern):
            env.bind(pattern.var, value)
        if isinstance(pattern, (syntax.AnyPattern, syntax.VarPattern)):
            return self._where(left, env, fits, fails)
        check_is_no_step(value)
        if isinstance(pattern, syntax.TuplePattern):
            if isinstance(value, relax.Expr):
                value = self._fields_of(value, len(pattern.fields))
            if len(value) != len(pattern.fields):
                return fails()
            return self._where([*zip(pattern.fields, value), *left], env, fits, fails)
        if isinstance(value, Data):
            if value.constructor != pattern.name:
                return fails()
            return self._where([*zip(pattern.fields, value.fields), *left], env, fits, fails)
        if not isinstance(value, Handle):
            raise self.error("a `match` on what is not data")
        handle, name = value, pattern.name

        def has_it() -> Any:
            fields = [
                (each, self.run_time.field(handle, name, index))
                for index, each in enumerate(pattern.fields)
                if not isinstance(each, syntax.AnyPattern)
            ]
            return self._where([*fields, *left], env, fits, fails)

        condition = self.run_time.has_constructor(handle, name)
        return has_it() if condition is None else self.branches(condition, has_it, fails)

    def reference(self, expr: syntax.Expr, env: Environment) -> Any:
        if isinstance(expr, syntax.RefCreate):
            cell = Reference(self.value(expr.value, env))
            self.cells.append(cell)
            return cell
        if not isinstance(expr, (syntax.RefRead, syntax.RefWrite)):
            raise self.error(f"{type(expr).__name__} has no value")
        cell = self.value(expr.ref, env)
        if not isinstance(cell, Reference):
            raise self.error("what is read or written is not a reference")
        if any(each is cell for each in self.cells[: self.outer_cells]):
            raise self.run_time.outer_reference()
        if isinstance(expr, syntax.RefRead):
            return cell.value
        cell.value = self.value(expr.value, env)
        return []


class _Endless(Exception):
    """Raised if an evaluation does not terminate at compile time; holds the recursive function."""

    def __init__(self, function: syntax.Function) -> None:
        super().__init__(function)
        self.function = function


def _only_field(sequence: relax.SeqExpr) -> relax.SeqExpr:
    """Unwrap the result of a sequence if it is a tuple of one field."""
    if len(sequence.body.fields) != 1:
        return sequence
    result = sequence.body.fields[0]
    return set_type(relax.SeqExpr(sequence.blocks, result), result.ty)
