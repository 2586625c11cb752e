"""Spans: where in its source an expression came from.

A span from an importer names the node of the model. Expressions derived from it keep its span.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax
from tvm.ir import SourceName, Span

from .scopes import rebuilt, set_type


def span_of(name: str, start: int = 0) -> Span:
    """A span with a source name but without line and column.

    `start`: index in the name of the model's own name of an operand; 0 if there is none.
    """
    return Span(SourceName(name), 0, 0, 0, start)


def operand_name(expr: relax.Expr) -> str:
    """The name that the model has for an operand, or ""."""
    span = expr.span
    if not isinstance(span, Span) or not span.end_column or span.line:
        return ""
    return str(span.source_name.name)[int(span.end_column) :]


def source_name(expr: relax.Expr) -> str:
    """The name that the model has for the node an expression comes from, or ""."""
    span = expr.span
    if not isinstance(span, Span) or span.line:
        return ""
    return str(span.source_name.name)


def with_span(expr: relax.Expr, span: Span) -> relax.Expr:
    """A call, tuple, field, condition, constant or variable like `expr`, with another span."""
    if isinstance(expr, relax.Call):
        made: relax.Expr = relax.Call(expr.op, expr.args, expr.attrs, expr.ty_args, span)
    elif isinstance(expr, relax.TupleGetItem):
        made = relax.TupleGetItem(expr.tuple_value, expr.index, span)
    elif isinstance(expr, relax.Tuple):
        made = relax.Tuple(list(expr.fields), span)
    elif isinstance(expr, relax.If):
        made = relax.If(expr.cond, expr.true_branch, expr.false_branch, span)
    elif isinstance(expr, tvm.ir.GenericConst):
        return tvm.ir.GenericConst(expr.value, expr.ty, span)
    elif isinstance(expr, relax.Var):
        return relax.Var(expr.name, expr.ty, span)
    else:
        return expr
    if made.ty.is_missing() and not expr.ty.is_missing():
        set_type(made, expr.ty)
    return made


def filled(expr: relax.Expr, span: Span | None, of_constants: Span | None = None) -> relax.Expr:
    """An expression with a span for all its calls, tuples, fields and constants that have none.

    What has one keeps it, inside too; variables stay. Constants get `of_constants`, if given.
    """
    if span is None:
        return expr
    known: dict[relax.Expr, relax.Expr] = {}  # what is read twice stays one expression

    def of(part: relax.Expr) -> relax.Expr:
        if getattr(part, "span", None) is not None or isinstance(part, relax.Var):
            return part
        if part not in known:
            known[part] = made_of(part)
        return known[part]

    def made_of(part: relax.Expr) -> relax.Expr:
        if isinstance(part, relax.Call):
            made = relax.Call(
                part.op, [of(arg) for arg in part.args], part.attrs, part.ty_args, span
            )
        elif isinstance(part, relax.Tuple):
            made = relax.Tuple([of(each) for each in part.fields], span)
        elif isinstance(part, relax.TupleGetItem):
            made = relax.TupleGetItem(of(part.tuple_value), part.index, span)
        elif isinstance(part, tvm.ir.GenericConst):
            return with_span(part, of_constants or span)
        else:
            return with_span(part, span)
        if made.ty.is_missing() and not part.ty.is_missing():
            set_type(made, part.ty)
        return made

    return of(expr)


def in_place_of(call: relax.Call, expr: relax.Expr) -> relax.Expr:
    """The replacement of a call with the span of the call."""
    if call.span is None:
        return expr
    constants = (each.span for each in call.args if isinstance(each, tvm.ir.GenericConst))
    return filled(expr, call.span, next(constants, None))


def sources_by_name(function: relax.Function) -> dict[str, str]:
    """Source names of the bindings of a function, by the names of their variables."""
    return {
        str(binding.var.name): found
        for block in function.body.blocks
        for binding in block.bindings
        if (found := source_name(binding.value))
    }


def with_call_sources(
    function: relax.Function, sources: Mapping[relax.Var, str] | Mapping[str, str]
) -> relax.Function:
    """Give spans to the calls of a function that have none; operands stay the same objects.

    `sources`: by variable or by its name. A binding without an entry gets that of the next one.
    """

    def change(block: relax.BindingBlock) -> relax.BindingBlock:
        made: list[relax.Binding] = []
        source = ""
        for binding in reversed(block.bindings):
            value, var = binding.value, binding.var
            source = sources.get(var, "") or sources.get(var.name, "") or source
            if source and isinstance(value, relax.Call) and not source_name(value):
                value = with_span(value, span_of(source))
                if isinstance(binding, relax.VarBinding):
                    binding = relax.VarBinding(var, value, binding.span)
            made.append(binding)
        return type(block)(made[::-1], block.span)

    body = set_type(
        relax.SeqExpr([change(block) for block in function.body.blocks], function.body.body),
        function.body.ty,
    )
    return rebuilt(function, body)


def with_sources(function: relax.Function, sources: Mapping[relax.Var, str]) -> relax.Function:
    """Fill in spans from `sources`, by variable; preceding bindings without an entry share them."""

    def sequence(body: relax.SeqExpr) -> relax.SeqExpr:
        blocks = [type(block)(bindings(block), block.span) for block in body.blocks]
        return set_type(relax.SeqExpr(blocks, body.body, body.span), body.ty)

    def bindings(block: relax.BindingBlock) -> list[relax.Binding]:
        made: list[relax.Binding] = []
        span = None
        for binding in reversed(block.bindings):
            if binding.var in sources:
                span = span_of(sources[binding.var])
            made.append(bound(binding, span))
        return made[::-1]

    def bound(binding: relax.Binding, span: Span | None) -> relax.Binding:
        value = binding.value
        if isinstance(value, relax.If):
            branches = [sequence(value.true_branch), sequence(value.false_branch)]
            value = set_type(relax.If(value.cond, *branches), value.ty)
        value = filled(value, span)
        if isinstance(binding, relax.MatchCast):
            return relax.MatchCast(binding.var, value, binding.ty, binding.span)
        return relax.VarBinding(binding.var, value, binding.span)

    return rebuilt(function, sequence(function.body))
