"""Convert a Relay program to expression nodes without evaluation.

Uses Relax nodes where they exist, otherwise those of `adt` and `function`. Scripts can thus
extend modules that have functions over data types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from ...errors import RelayError
from .. import adt, dialect
from ..expr import If, Let, Tuple, TupleGetItem, const
from ..function import Function, OpenFunction
from ..ty import FuncType
from ..type_infer import set_type
from . import syntax
from .kinds import relax_type
from .lexer import naming_place
from .traversal import deep, free_variables


def is_library(program: syntax.Module) -> bool:
    """Whether a program has data types or functions but no `main` over tensors that uses them."""
    main = program.functions.get("main")
    if main is not None:
        returns_function = isinstance(main.result, syntax.FuncType)
        takes_others = any(_is_foreign(var.type) for var in main.parameters)
        return bool(main.type_params) or returns_function or takes_others
    functions = program.functions.values()
    return bool(program.types) or any(
        each.type_params or any(_is_foreign(var.type) for var in each.parameters)
        for each in functions
    )


def _is_foreign(kind: syntax.Type | None) -> bool:
    """Whether a type contains non-tensors, which compiled functions do not support."""
    if isinstance(kind, syntax.TupleType):
        return any(map(_is_foreign, kind.fields))
    return isinstance(kind, (syntax.FuncType, syntax.NamedType, syntax.RefType))


def to_nodes(program: syntax.Module, known: tvm.IRModule | None = None) -> tvm.IRModule:
    """Convert a program and another module to one module, without evaluation."""
    mod = tvm.IRModule() if known is None else known.clone()
    add_to_module(program, mod)
    return mod


def expression(block: syntax.Block, text: str) -> Any:
    """Convert an expression; global functions that it calls may be defined later."""
    maker = _Maker(syntax.Module(text=text), tvm.IRModule(), is_open=True)
    for var in free_variables(block):
        maker.declared(var)
    with deep():
        return maker.block(block)


def add_to_module(program: syntax.Module, mod: tvm.IRModule) -> None:
    """Add a program's types and functions to a module in place, except functions it has.

    Raises RelayError: the program refers to a function or type that is defined in neither.
    """
    with deep():
        _Maker(program, mod).add()


class _Maker:
    def __init__(self, program: syntax.Module, mod: tvm.IRModule, is_open: bool = False) -> None:
        self.is_open = is_open
        self.source = program.source
        self.program = program
        self.mod = mod
        known = adt.type_definitions(mod)
        self.headers = {name: adt.GlobalTypeVar(name) for name in program.types}
        self.headers.update((str(header.name_hint), header) for header in known)
        self.constructors: dict[str, adt.Constructor] = {
            str(each.name_hint): each for found in known.values() for each in found.constructors
        }
        self.globals = {str(each.name_hint): each for each in mod.get_global_vars()}
        self.type_vars: list[Mapping[str, adt.TypeVar]] = []
        self.variables: dict[syntax.Var, tvm.ir.Expr] = {}

    def error(self, message: str) -> RelayError:
        return RelayError(f"{self.source}: {message}")

    def add(self) -> None:
        known = {str(header.name_hint) for header in adt.type_definitions(self.mod)}
        new_types = [each for name, each in self.program.types.items() if name not in known]
        adt.define(self.mod, *map(self.data_type, new_types))
        new = [name for name in self.program.functions if name not in self.globals]
        self.globals.update((name, tvm.ir.GlobalVar(name)) for name in new)
        for name in new:
            made = self.function(self.program.functions[name])
            if isinstance(made, relax.Function) and self.globals[name].ty.is_missing():
                set_type(self.globals[name], made.ty)
            self.mod.update_func(self.globals[name], made)

    def data_type(self, found: syntax.DataType) -> adt.TypeData:
        header = self.headers[found.name]
        own = {name: adt.TypeVar(name) for name in found.type_params}
        self.type_vars.append(own)
        made = [
            adt.Constructor(name, [self.type(field) for field in fields], header)
            for name, fields in found.constructors.items()
        ]
        self.type_vars.pop()
        self.constructors.update((str(each.name_hint), each) for each in made)
        return adt.TypeData(header, list(own.values()), made)

    def type(self, kind: syntax.Type | None) -> Any:
        """Convert a type; None if it is unknown."""
        if isinstance(kind, syntax.NamedType):
            return self._named(kind)
        if isinstance(kind, syntax.TupleType):
            fields = [self.type(field) for field in kind.fields]
            return None if None in fields else relax.TupleType(fields)
        if isinstance(kind, syntax.FuncType):
            parts = [self.type(each) for each in (*kind.arguments, kind.result)]
            return None if None in parts else FuncType(parts[:-1], parts[-1])
        if isinstance(kind, syntax.RefType):
            value = self.type(kind.value)
            return None if value is None else adt.RefType(value)
        return relax_type(kind)

    def _named(self, kind: syntax.NamedType) -> Any:
        for scope in reversed(self.type_vars):
            if kind.name in scope and not kind.arguments:
                return scope[kind.name]
        if kind.name not in self.headers:
            raise self.error(f"there is no type {kind.name}")
        arguments = [self.type(each) for each in kind.arguments]
        return None if None in arguments else self.headers[kind.name](*arguments)

    def function(self, found: syntax.Function) -> relax.Function | OpenFunction:
        own = {name: adt.TypeVar(name) for name in found.type_params}
        self.type_vars.append(own)
        parameters = [self.declared(var) for var in found.parameters]
        body = self.block(found.body)
        result = self.type(found.result)
        self.type_vars.pop()
        return Function(parameters, body, result, list(own.values()), found.attributes or None)

    def declared(self, var: syntax.Var) -> relax.Var:
        made = self.variables[var] = relax.Var(var.name or "v", self.type(var.type))
        return made

    def block(self, block: syntax.Block) -> tvm.ir.Expr:
        lets: list[tuple[relax.Var, tvm.ir.Expr]] = []
        for var, value in block.bindings:
            if var.number is not None:
                self.variables[var] = self.expression(value)
            elif isinstance(value, syntax.Function):
                named = self.declared(var)  # before the value, which may call it
                lets.append((named, self.expression(value)))
            else:
                bound = self.expression(value)
                lets.append((self.declared(var), bound))
        result = self.expression(block.result)
        for named, value in reversed(lets):
            result = Let(named, value, result)
        return result

    def expression(self, expr: syntax.Expr) -> Any:
        if isinstance(expr, syntax.Var):
            if expr not in self.variables:
                if expr.definition is None:
                    raise self.error(f"the variable %{expr.name} is not bound")
                self.variables[expr] = self.expression(expr.definition)
            return self.variables[expr]
        if isinstance(expr, syntax.Call):
            return self.call(expr)
        if isinstance(expr, syntax.Constant):
            return const(expr.value, str(expr.value.dtype))
        if isinstance(expr, syntax.Tuple):
            return Tuple([self.expression(field) for field in expr.fields])
        if isinstance(expr, syntax.Field):
            return TupleGetItem(self.expression(expr.tuple), expr.index)
        if isinstance(expr, syntax.If):
            branches = self.block(expr.then), self.block(expr.otherwise)
            return If(self.expression(expr.condition), *branches)
        if isinstance(expr, syntax.Function):
            return self.function(expr)
        if isinstance(expr, syntax.Global):
            if expr.name not in self.globals:
                if not self.is_open:
                    raise self.error(f"unknown function @{expr.name}")
                self.globals[expr.name] = tvm.ir.GlobalVar(expr.name)
            return self.globals[expr.name]
        if isinstance(expr, syntax.Op):
            return dialect.operator(expr.name)
        if isinstance(expr, syntax.Constructor):
            return self.constructor(expr.name)
        if isinstance(expr, syntax.Block):
            return self.block(expr)
        return self.of_data(expr)

    def call(self, expr: syntax.Call) -> Any:
        operands = [self.expression(each) for each in expr.arguments]
        if isinstance(expr.function, syntax.Op):
            with naming_place(self.source, self.program.text, expr.position):
                return dialect.call(expr.function.name, operands, expr.attributes)
        called = expr.function
        if isinstance(called, syntax.Constructor):
            return relax.Call(self.constructors[called.name], operands)
        return relax.Call(self.expression(called), operands)

    def constructor(self, name: str) -> Any:
        """Convert a constructor to a value; a constructor without fields to its instance."""
        found = self.constructors[name]
        return found if len(found.inputs) else relax.Call(found, [])

    def of_data(self, expr: syntax.Expr) -> Any:
        if isinstance(expr, syntax.Match):
            value = self.expression(expr.value)
            clauses = []
            for clause in expr.clauses:
                pattern = self.pattern(clause.pattern)
                clauses.append(adt.Clause(pattern, self.block(clause.body)))
            return adt.Match(value, clauses, expr.complete)
        if isinstance(expr, syntax.RefCreate):
            return adt.RefCreate(self.expression(expr.value))
        if isinstance(expr, syntax.RefRead):
            return adt.RefRead(self.expression(expr.ref))
        if isinstance(expr, syntax.RefWrite):
            return adt.RefWrite(self.expression(expr.ref), self.expression(expr.value))
        raise self.error(f"a {type(expr).__name__} can't stand here")

    def pattern(self, pattern: syntax.Pattern) -> Any:
        if isinstance(pattern, syntax.VarPattern):
            return adt.PatternVar(self.declared(pattern.var))
        if isinstance(pattern, syntax.ConstructorPattern):
            inner = [self.pattern(each) for each in pattern.fields]
            return adt.PatternConstructor(self.constructors[pattern.name], inner)
        if isinstance(pattern, syntax.TuplePattern):
            return adt.PatternTuple([self.pattern(each) for each in pattern.fields])
        return adt.PatternWildcard()
