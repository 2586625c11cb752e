"""Convert a Relax module with Relay operators to the syntax tree of Relay text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from ...errors import RelayError
from ...ir.rewrite import operator_name
from ...lowering.offloaded_functions import RELAY_FUNCTION
from .. import adt, dialect
from ..nested_expressions import calls_itself, operands, post_order
from ..relax_to_relay import raised
from . import syntax

_handle = tvm_ffi.Object.__hash__
_EXTENT = re.compile(r"T\.(?:int64\((-?\d+)\))?")


def from_relax(mod: tvm.IRModule) -> syntax.Module:
    """Relay program, functions sorted by name; RelayError for others, such as lowered kernels."""
    made = syntax.Module(types=data_types(mod))
    functions = {str(gvar.name_hint): function for gvar, function in mod.functions_items()}
    for name in sorted(functions):
        if not _is_function(functions[name]):
            raise RelayError(f"@{name} is a lowered kernel, which Relay's text has no form for")
        made.functions[name] = _Converter().function(functions[name], name)
    return made


def open_function_of(
    free: Sequence[relax.Var], function: relax.Function
) -> tuple[syntax.Function, list[syntax.Var]]:
    """Convert a function and its free variables to syntax nodes."""
    converter = _Converter()
    made = [converter.variable(var) for var in free]
    return converter.function(function), made


def expression_of(
    free: Sequence[relax.Var], body: relax.Expr
) -> tuple[list[syntax.Var], syntax.Block]:
    """Convert an expression and its free variables to syntax nodes."""
    converter = _Converter()
    made = [converter.variable(var) for var in free]
    return made, converter.block(body)


def type_of(ty: Any) -> syntax.Type | None:
    """Convert a Relax type to a Relay type; None if there is no equivalent."""
    if isinstance(ty, (adt.TypeVar, adt.GlobalTypeVar)):
        return syntax.NamedType(str(ty.name_hint))
    if isinstance(ty, adt.TypeCall):
        inside = tuple(type_of(each) or syntax.UnknownType() for each in ty.args)
        return syntax.NamedType(str(ty.func.name_hint), inside, True)
    if isinstance(ty, adt.RefType):
        return syntax.RefType(type_of(ty.value) or syntax.UnknownType())
    if isinstance(ty, adt.PolymorphicType):
        inner = tuple(type_of(each) or syntax.UnknownType() for each in ty.arg_types)
        names = tuple(str(each.name_hint) for each in ty.type_params)
        return syntax.FuncType(inner, type_of(ty.ret_type) or syntax.UnknownType(), names)
    if isinstance(ty, relax.TensorType):
        if ty.shape is not None and hasattr(ty.shape, "values"):
            shape = tuple(
                int(extent) if isinstance(extent, tvm.tirx.IntImm) else None
                for extent in ty.shape.values
            )
        elif ty.ndim >= 0:
            shape = (None,) * ty.ndim
        else:
            return None
        return syntax.TensorType(shape, str(ty.dtype))
    if isinstance(ty, relax.TupleType):
        fields = [type_of(field) for field in ty.fields]
        return None if None in fields else syntax.TupleType(tuple(fields))  # type: ignore[arg-type]
    if isinstance(ty, relax.FuncType) and ty.params is not None:
        arguments = [type_of(param) for param in ty.params]
        result = type_of(ty.ret)
        if None not in arguments and result is not None:
            return syntax.FuncType(tuple(arguments), result)  # type: ignore[arg-type]
    return None


def data_types(mod: tvm.IRModule) -> dict[str, syntax.DataType]:
    """Data types of a module by name."""
    found = adt.type_definitions(mod).values()
    return {str(each.header.name_hint): _data_type(each) for each in found}


def _data_type(found: adt.TypeData) -> syntax.DataType:
    constructors = {
        str(each.name_hint): tuple(type_of(kind) or syntax.UnknownType() for kind in each.inputs)
        for each in found.constructors
    }
    names = tuple(str(each.name_hint) for each in found.type_vars)
    return syntax.DataType(str(found.header.name_hint), names, constructors)


class _Converter:
    def __init__(self) -> None:
        self.values: dict[int, tuple[Any, syntax.Expr]] = {}
        self.bindings: list[tuple[syntax.Var, syntax.Expr]] = []
        self.own: set[int] = set()  # nodes of the expression, without those in its scopes

    def function(self, function: Any, name: str = "") -> syntax.Function:
        if function.attrs is not None and RELAY_FUNCTION in function.attrs:
            return self.function(function.attrs[RELAY_FUNCTION], name)  # as its codegen gets it
        outer, self.values = self.values, dict(self.values)
        parameters = [self.variable(var) for var in function.params]
        attributes = _attributes(function, name)
        body = self.block(function.body)
        self.values = outer  # values computed in the body are local
        if isinstance(function, relax.Function):
            return syntax.Function(parameters, body, type_of(function.ret_ty), (), attributes)
        names = tuple(str(each.name_hint) for each in function.type_params)
        result = None if function.result_type is None else type_of(function.result_type)
        return syntax.Function(parameters, body, result, names, attributes)

    def variable(self, var: relax.Var) -> syntax.Var:
        made = syntax.Var(str(var.name), type_of(var.ty))
        self.values[_handle(var)] = (var, made)
        return made

    def block(self, body: relax.Expr) -> syntax.Block:
        """Convert the body of a function, branch or clause; its values are unknown outside."""
        outer, self.bindings, known = self.bindings, [], len(self.values)
        made, result = self.bindings, self.expression(body)
        if made and made[-1][0] is result:  # the result has no other use
            var, value = made.pop()
            block = syntax.Block(made, value, var.type, var.place)
        else:
            block = syntax.Block(made, result)
        self.bindings = outer
        local = [self.values.popitem() for _ in range(len(self.values) - known)]
        self.values.update((key, pair) for key, pair in local if isinstance(pair[0], relax.Var))
        return block

    def _scopes(self, scopes: Sequence[relax.Expr]) -> list[syntax.Block]:
        """Convert branches or clauses; a value that others need, too, is bound outside, once."""

        def inside(node: relax.Expr) -> list[relax.Expr]:
            return [] if _handle(node) in self.values else _inside(node)

        found = Counter(_handle(node) for scope in scopes for node in post_order(scope, inside))
        shared = {key for key, readers in found.items() if readers > 1 or key in self.own}
        for scope in scopes:
            stops = post_order(scope, lambda n: [] if _handle(n) in shared else inside(n))
            for node in [each for each in stops if _handle(each) in shared and _inside(each)]:
                self.expression(node)
        return [self.block(scope) for scope in scopes]

    def expression(self, expr: relax.Expr) -> syntax.Expr:
        """Convert an expression after binding its nested parts."""
        known = self.values.get(_handle(expr))
        if known is not None:
            return known[1]
        if isinstance(expr, relax.SeqExpr):
            for block in expr.blocks:
                for binding in block.bindings:
                    if isinstance(binding, relax.MatchCast):
                        raise RelayError(
                            f"{binding.var.name} names extents known at run time, which Relay's "
                            "text has no form for"
                        )
                    if calls_itself(binding):
                        self._recursion(binding)
                        continue
                    value = self.expression(binding.value)
                    self.values[_handle(binding.var)] = (binding.var, value)
            made = self.expression(expr.body)
            self.values[_handle(expr)] = (expr, made)
            return made
        order = list(post_order(expr, _below))  # chains can exceed Python's stack
        outer, self.own = self.own, set(map(_handle, order))
        for node in order:
            if not isinstance(node, relax.SeqExpr) and _handle(node) not in self.values:
                made = self._bound(node)
        self.own = outer
        return made

    def _bound(self, expr: relax.Expr) -> syntax.Expr:
        """Convert a node with converted operands; bind it to a variable unless it is a leaf."""
        made = self._made(expr)
        if isinstance(made, (syntax.Constant, syntax.Global, syntax.Var, syntax.Constructor)):
            return made
        var = syntax.Var("", type_of(expr.ty), len(self.bindings), made, _place(expr))
        self.bindings.append((var, made))
        self.values[_handle(expr)] = (expr, var)
        return var

    def _made(self, expr: relax.Expr) -> syntax.Expr:
        if isinstance(expr, tvm.ir.GenericConst):
            return syntax.Constant(expr.value)
        if isinstance(expr, relax.Var):
            return self.variable(expr)
        if isinstance(expr, tvm.ir.GlobalVar):
            return syntax.Global(str(expr.name_hint))
        if isinstance(expr, relax.Tuple):
            return syntax.Tuple([self.expression(field) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return syntax.Field(self.expression(expr.tuple_value), int(expr.index))
        if _is_function(expr):
            return self.function(expr)
        if isinstance(expr, relax.If):
            condition = self.expression(expr.cond)
            return syntax.If(condition, *self._scopes([expr.true_branch, expr.false_branch]))
        if isinstance(expr, relax.Call):
            return self._call(expr)
        if isinstance(expr, tvm.ir.Op):
            return syntax.Op(str(expr.name))
        if isinstance(expr, adt.Constructor):
            return syntax.Constructor(str(expr.name_hint))
        if isinstance(expr, adt.Match):
            return self._match(expr)
        if isinstance(expr, adt.RefCreate):
            return syntax.RefCreate(self.expression(expr.value))
        if isinstance(expr, adt.RefRead):
            return syntax.RefRead(self.expression(expr.ref))
        if isinstance(expr, adt.RefWrite):
            return syntax.RefWrite(self.expression(expr.ref), self.expression(expr.value))
        raise RelayError(f"a {type(expr).__name__} has no form in Relay's text")

    def _recursion(self, binding: relax.VarBinding) -> None:
        var = self.variable(binding.var)
        self.bindings.append((var, self.function(binding.value)))

    def _match(self, match: adt.Match) -> syntax.Expr:
        value = self.expression(match.data)
        patterns = [self._pattern(clause.lhs) for clause in match.clauses]
        blocks = self._scopes([clause.rhs for clause in match.clauses])
        clauses = [syntax.Clause(*pair) for pair in zip(patterns, blocks)]
        return syntax.Match(value, clauses, bool(match.complete))

    def _pattern(self, pattern: Any) -> syntax.Pattern:
        if isinstance(pattern, adt.PatternVar):
            return syntax.VarPattern(self.variable(pattern.var))
        if isinstance(pattern, adt.PatternTuple):
            return syntax.TuplePattern([self._pattern(each) for each in pattern.patterns])
        if isinstance(pattern, adt.PatternConstructor):
            inner = [self._pattern(each) for each in pattern.patterns]
            return syntax.ConstructorPattern(str(pattern.constructor.name_hint), inner)
        return syntax.AnyPattern()

    def _call(self, call: relax.Call) -> syntax.Expr:
        if dialect.is_relay(call):
            name, attributes = dialect.relay_name(call), dialect.attributes(call)
            taken = list(call.args)
        elif isinstance(call.op, tvm.ir.Op):
            made = raised(call)
            if made is None and operator_name(call).startswith("relay."):
                return self._kernel(call)
            if made is None:
                raise RelayError(
                    f"this call of the Relax operator {call.op.name} has no form in Relay's text"
                )
            return self._made(made)
        else:
            function = self.expression(call.op)
            return syntax.Call(function, [self.expression(arg) for arg in call.args])
        return syntax.Call(syntax.Op(name), [self.expression(each) for each in taken], attributes)

    def _kernel(self, call: relax.Call) -> syntax.Expr:
        """Convert a call of a kernel of `op.te_op`, such as the check whether extents broadcast."""
        taken = [
            syntax.Extents(tuple(_EXTENT.sub(r"\1", str(extent)) for extent in each.values))
            if isinstance(each, relax.ShapeExpr)
            else self.expression(each)
            for each in call.args
        ]
        kernel = syntax.Kernel(operator_name(call).removeprefix("relay."))
        return syntax.Call(kernel, taken, dialect.attributes(call))


def _attributes(function: Any, name: str) -> dict[str, Any]:
    if function.attrs is None:
        return {}
    found = {str(key): value for key, value in function.attrs.items()}
    if found.get("global_symbol") == name and "Compiler" not in found:
        del found["global_symbol"]
    return found


def _place(expr: relax.Expr) -> str:
    """Source position of an expression: the node of a model, or line and column in a text."""
    span = expr.span
    if span is None or not isinstance(span, tvm.ir.Span) or not str(span.source_name.name):
        return ""
    return f"{span.source_name.name}:{span.line}:{span.column}"


def _below(expr: relax.Expr) -> list[relax.Expr]:
    """Operands to convert before an expression; Relax operators convert their own operands."""
    is_relaxs = isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op)
    return [] if is_relaxs and not dialect.is_relay(expr) else operands(expr)


def _inside(expr: relax.Expr) -> list[relax.Expr]:
    """All nodes directly inside an expression, those of its scopes included; none of a leaf."""
    if isinstance(expr, relax.SeqExpr):
        values = [each.value for block in expr.blocks for each in block.bindings]
        return [*values, expr.body]
    if _is_function(expr):
        return [expr.body]
    inner = [*operands(expr), *([expr.op] if isinstance(expr, relax.Call) else [])]
    if isinstance(expr, relax.If):
        inner += [expr.true_branch, expr.false_branch]
    if isinstance(expr, adt.Match):
        inner += [clause.rhs for clause in expr.clauses]
    return inner


def _is_function(expr: Any) -> bool:
    if isinstance(expr, relax.Function):
        return True
    return isinstance(expr, tvm.ir.BaseFunc) and hasattr(expr, "type_params")
