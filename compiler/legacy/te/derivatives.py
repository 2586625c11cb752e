"""`te.gradient`: the derivatives of a computation, as computations of TE."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.ir import Call, Op

from schedules.tir_visit import nodes_of

from ...errors import ScheduleError
from .dataflow import is_load, substitute
from .deltas import Sum, as_expr, solved
from .relations import constant, like
from .schedule import in_order

Expr = Any


@dataclass(frozen=True, eq=False)
class Partial:
    """A leaf of an expression, and the factor of its small change in the expression's."""

    leaf: Expr
    factor: Expr  # defined where all conditions hold; elsewhere it is 0
    conditions: tuple[Expr, ...]


# Of functions of one value: (x, f(x)) -> f'(x).
_FUNCTIONS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "acos": lambda x, y: -tirx.rsqrt(1.0 - x * x),
    "asin": lambda x, y: tirx.rsqrt(1.0 - x * x),
    "atan": lambda x, y: 1.0 / (1.0 + x * x),
    "cos": lambda x, y: -tirx.sin(x),
    "cosh": lambda x, y: tirx.sinh(x),
    "erf": lambda x, y: tirx.exp(-x * x) * like(x, 2 / math.sqrt(math.pi)),
    "exp": lambda x, y: y,
    "exp10": lambda x, y: y * like(x, math.log(10)),
    "exp2": lambda x, y: y * like(x, math.log(2)),
    "fabs": lambda x, y: tirx.Select(x >= like(x, 0), like(x, 1), like(x, -1)),
    "log": lambda x, y: 1.0 / x,
    "log10": lambda x, y: 1.0 / (x * like(x, math.log(10))),
    "log1p": lambda x, y: 1.0 / (1.0 + x),
    "log2": lambda x, y: 1.0 / (x * like(x, math.log(2))),
    "rsqrt": lambda x, y: y / x * like(x, -0.5),
    "sigmoid": lambda x, y: y * (1.0 - y),
    "sin": lambda x, y: tirx.cos(x),
    "sinh": lambda x, y: tirx.cosh(x),
    "sqrt": lambda x, y: like(x, 0.5) / y,
    "tan": lambda x, y: 1.0 + y * y,
    "tanh": lambda x, y: 1.0 - y * y,
}
_STEPS = ("floor", "ceil", "trunc", "round", "nearbyint")


def partials(
    expr: Expr, factor: Expr, is_leaf: Callable[[Expr], bool], conditions: tuple[Expr, ...] = ()
) -> Iterator[Partial]:
    """Contributions of the leaves to an expression times `factor`.

    `is_leaf`: whether the derivative by a node is wanted.
    Raises ScheduleError: a leaf lies in an expression without a derivative that is known.
    """
    if is_leaf(expr):
        yield Partial(expr, factor, conditions)
        return
    if not str(expr.ty.dtype).startswith(("float", "bfloat")):
        return  # an index or a condition: changes in steps
    for part, its_factor, where in _operands(expr, factor, is_leaf):
        yield from partials(part, its_factor, is_leaf, (*conditions, *where))


_Operands = list[tuple[Expr, Expr, tuple[Expr, ...]]]


def _operands(expr: Expr, factor: Expr, is_leaf: Callable[[Expr], bool]) -> _Operands:
    """(operand, its factor, conditions) of an expression."""
    if isinstance(expr, tirx.Add):
        return [(expr.a, factor, ()), (expr.b, factor, ())]
    if isinstance(expr, tirx.Sub):
        return [(expr.a, factor, ()), (expr.b, -factor, ())]
    if isinstance(expr, tirx.Mul):
        return [(expr.a, factor * expr.b, ()), (expr.b, factor * expr.a, ())]
    if isinstance(expr, tirx.Div):
        return [(expr.a, factor / expr.b, ()), (expr.b, -factor * expr.a / (expr.b * expr.b), ())]
    if isinstance(expr, tirx.Max):
        return _choice(expr.a >= expr.b, expr.a, expr.b, factor)
    if isinstance(expr, tirx.Min):
        return _choice(expr.a <= expr.b, expr.a, expr.b, factor)
    if isinstance(expr, tirx.Select):
        return _choice(expr.condition, expr.true_value, expr.false_value, factor)
    if isinstance(expr, tirx.Cast):
        source = str(expr.value.ty.dtype)
        return [(expr.value, factor.astype(source), ())] if "float" in source else []
    if isinstance(expr, Call) and isinstance(expr.op, Op):
        name = str(expr.op.name).rpartition(".")[2]
        if name in _STEPS:
            return []
        if name == "if_then_else":
            condition, then, otherwise = expr.args
            return _choice(condition, then, otherwise, factor)
        if name == "pow":
            base, exponent = expr.args
            return _power(expr, base, exponent, factor)
        if name in _FUNCTIONS:
            (x,) = expr.args
            return [(x, factor * _FUNCTIONS[name](x, expr), ())]
    if any(is_leaf(node) for kind in (Call, tirx.Var) for node in nodes_of(expr, kind)):
        raise ScheduleError(f"te.gradient: the derivative of {expr} is not known")
    return []


def _choice(condition: Expr, then: Expr, otherwise: Expr, factor: Expr) -> _Operands:
    return [(then, factor, (condition,)), (otherwise, factor, (tirx.Not(condition),))]


def _power(expr: Expr, base: Expr, exponent: Expr, factor: Expr) -> _Operands:
    of_base = factor * exponent * tirx.power(base, exponent - like(exponent, 1))
    of_exponent = factor * expr * tirx.log(base)
    return [(base, of_base, ()), (exponent, of_exponent, ())]


Tensor = Any
Axes = list[tuple[Any, Any, Any]]
Key = tuple[Any, int]


def gradient(output: Tensor, inputs: Any, head: Tensor | None = None) -> list[Tensor]:
    """Derivatives of a tensor by others that it is computed from, backwards.

    `inputs`: placeholders, or results on the way. `head`: the derivative of something by the
    output: its last dimensions are the output's. Returns, for each input, a tensor of the shape of
    `head` without the output's dimensions, followed by the input's: the derivative of that
    something. Without `head`, those of all of the output's elements, whose shape comes first.
    Raises ScheduleError: the output depends on an input by what has no derivative here: an external
    operation, a scan, a reduction of several values, or a function that is not known.
    """
    wanted = [inputs] if isinstance(inputs, te.Tensor) else list(inputs)
    return _Backwards(output, wanted, head).results()


class _Backwards:
    """Derivatives by tensors, from the output on.

    `prefix` is the shape that all derivatives begin with.
    """

    def __init__(self, output: Tensor, wanted: Sequence[Tensor], head: Tensor | None) -> None:
        self.output, self.wanted, self.head = output, list(wanted), head
        rank = len(output.shape)
        if head is not None and len(head.shape) < rank:
            raise ScheduleError(
                f"te.gradient: head has {len(head.shape)} dimensions, and the output {rank}"
            )
        shape = output.shape if head is None else head.shape[: len(head.shape) - rank]
        self.prefix = list(shape)
        self._ops = in_order([output.op])
        self._depends = self._dependent()
        self._terms: dict[Key, list[tuple[Tensor, Partial, Axes]]] = {}
        self._derivatives: dict[Key, Tensor] = {}

    def _dependent(self) -> set[Key]:
        """Tensors that a wanted one is part of."""
        found = set(map(_key, self.wanted))
        for op in self._ops:
            if any(_key(tensor) in found for tensor in op.input_tensors):
                found.update((op, index) for index in range(op.num_outputs))
        return found

    def results(self) -> list[Tensor]:
        """The derivative by each wanted tensor."""
        for op in reversed(self._ops):
            for index in range(op.num_outputs):
                key = op, index
                if key in self._depends and (key == _key(self.output) or key in self._terms):
                    self._derive(op.output(index))
        found = self._derivatives
        return [found.get(_key(each), self._zero(each)) for each in self.wanted]

    def _zero(self, tensor: Tensor) -> Tensor:
        zero = tirx.const(0, str(tensor.dtype))
        shape = [*self.prefix, *tensor.shape]
        return te.compute(shape, lambda *_: zero, name=f"{tensor.op.name}.grad")

    # --- one tensor ----------------------------------------------------------------------

    def _derive(self, tensor: Tensor) -> None:
        """Sum up the derivative by a tensor, and go on to what it is computed from."""
        key = _key(tensor)
        if key in self._terms or key in map(_key, self.wanted):
            self._derivatives[key] = self._summed(tensor)
        op = tensor.op
        reads = [each for each in op.input_tensors if _key(each) in self._depends]
        if not reads:
            return
        if not isinstance(op, te.ComputeOp):
            raise ScheduleError(f"te.gradient: {op.name} is not a te.compute, which it has to be")
        axes = [(axis.var, axis.dom.min, axis.dom.extent) for axis in op.axis]
        body = op.body[int(tensor.value_index)]
        if isinstance(body, tirx.Reduce):
            self._through_reduction(tensor, body, axes)
        else:
            self._through(tensor, body, tirx.const(1, str(body.ty.dtype)), (), axes)

    def _through(
        self, tensor: Tensor, body: Any, factor: Any, conditions: tuple[Any, ...], axes: Axes
    ) -> None:
        """Note what the tensors that an expression reads contribute."""

        def is_wanted(node: Any) -> bool:
            return isinstance(node, Call) and is_load(node) and _key(node.args[0]) in self._depends

        for partial in partials(body, factor, is_wanted, conditions):
            source = _key(partial.leaf.args[0])
            self._terms.setdefault(source, []).append((tensor, partial, axes))

    def _through_reduction(self, tensor: Tensor, body: Any, axes: Axes) -> None:
        name = tensor.op.name
        if len(body.combiner.result) > 1:
            raise ScheduleError(f"te.gradient: {name} is a reduction of several values")
        source, dtype = body.source[0], str(body.source[0].ty.dtype)
        inner = [(axis.var, axis.dom.min, axis.dom.extent) for axis in body.axis]
        conditions = () if constant(body.condition) == 1 else (body.condition,)
        if _is_sum(body.combiner):
            self._through(tensor, source, tirx.const(1, dtype), conditions, [*axes, *inner])
            if body.init:
                self._through(tensor, body.init[0], tirx.const(1, dtype), (), axes)
            return
        if body.init:
            raise ScheduleError(f"te.gradient: {name} is a reduction with init, and not a sum")
        share = _shares(tensor, body)
        factor = share(*(var - first for var, first, _ in [*axes, *inner]))
        self._through(tensor, source, factor, conditions, [*axes, *inner])

    # --- sums ----------------------------------------------------------------------------

    def _summed(self, tensor: Tensor) -> Tensor:
        """The derivative by a tensor: a sum of reductions, and of what is left without one."""
        name = f"{tensor.op.name}.grad"
        shape = [*self.prefix, *tensor.shape]
        count = len(self._terms.get(_key(tensor), [])) + (_key(tensor) == _key(self.output))
        if count == 1:
            return te.compute(shape, lambda *place: self._term(tensor, 0, place), name=name)
        parts = [self._part(tensor, index, f"{name}.{index}") for index in range(count)]

        def value(*place: Any) -> Any:
            return functools.reduce(operator.add, (_inlined(part, place) for part in parts))

        return te.compute(shape, value, name=name)

    def _part(self, tensor: Tensor, index: int, name: str) -> Tensor:
        shape = [*self.prefix, *tensor.shape]
        return te.compute(shape, lambda *place: self._term(tensor, index, place), name=name)

    def _term(self, tensor: Tensor, index: int, place: Sequence[Any]) -> Any:
        outer, at = place[: len(self.prefix)], place[len(self.prefix) :]
        extents = [*self.prefix, *tensor.shape]
        known = [(v, tirx.const(0, str(v.ty.dtype)), n) for v, n in zip(place, extents)]
        terms = self._terms.get(_key(tensor), [])
        if index == len(terms):  # the output is wanted itself
            one = Sum(tirx.const(1, str(tensor.dtype)), [], [], [])
            return as_expr(_times(self.head, outer, at, one), known)
        reader, partial, axes = terms[index]
        renamed = {var: tirx.Var(var.name, var.ty) for var, _, _ in axes}
        fresh = [
            (renamed[var], substitute(low, renamed), substitute(n, renamed)) for var, low, n in axes
        ]
        equations = [(i, _as(i, j)) for i, j in zip(partial.leaf.args[1:], at)]
        total = Sum(partial.factor, axes, equations, list(partial.conditions))
        total = total.with_values(renamed)
        total = Sum(total.value, fresh, total.equations, total.conditions)
        indices = [renamed[axis.var] for axis in reader.op.axis]
        derivative = self._derivatives.get(_key(reader), self.head)
        return as_expr(solved(_times(derivative, outer, indices, total)), known)


def _times(
    derivative: Tensor | None, outer: Sequence[Any], indices: Sequence[Any], total: Sum
) -> Sum:
    """A sum times the derivative by a tensor; None is that of the output by itself."""
    if derivative is not None:
        factor = derivative(*outer, *indices)
        return Sum(factor * total.value, total.axes, total.equations, total.conditions)
    same = [(i, _as(i, j)) for i, j in zip(indices, outer)]
    return Sum(total.value, total.axes, [*same, *total.equations], total.conditions)


def _key(tensor: Tensor) -> Key:
    return tensor.op, int(tensor.value_index)


def _as(index: Any, other: Any) -> Any:
    dtype = str(index.ty.dtype)
    return other if str(other.ty.dtype) == dtype else other.astype(dtype)


def _inlined(part: Tensor, place: Sequence[Any]) -> Any:
    """An element of a part: read where it is a reduction, else its expression."""
    body = part.op.body[0]
    if isinstance(body, tirx.Reduce):
        return part(*place)
    return substitute(body, {axis.var: index for axis, index in zip(part.op.axis, place)})


def _is_sum(combiner: Any) -> bool:
    (result,), left, right = combiner.result, combiner.lhs[0], combiner.rhs[0]
    if not isinstance(result, tirx.Add):
        return False
    return {left, right} == {result.a, result.b}


def _shares(tensor: Tensor, body: Any) -> Tensor:
    """The derivative of each result of a reduction by each of the values that it takes.

    The reduction is done once more for each value, on pairs of a value and its change, of which
    that one's alone is 1.
    """
    combiner, reduced = body.combiner, list(body.axis)
    left, right = combiner.lhs[0], combiner.rhs[0]
    zero, one = (tirx.const(value, str(body.source[0].ty.dtype)) for value in (0, 1))

    def combine(x: Any, y: Any) -> Any:
        (dx, x), (dy, y) = x, y
        change = zero
        for var, amount in ((left, dx), (right, dy)):
            for partial in partials(combiner.result[0], one, var.same_as):
                term = partial.factor * amount
                for condition in partial.conditions:
                    term = tirx.Select(condition, term, zero)
                change = change + term
        values = {left: x, right: y}
        return substitute(change, values), substitute(combiner.result[0], values)

    reducer = te.comm_reducer(
        combine, lambda *_: (zero, combiner.identity_element[0]), name="derivative"
    )

    def value(*place: Any) -> Any:
        spatial = tensor.op.axis
        axes = [te.reduce_axis(axis.dom, f"{axis.var.name}.of") for axis in reduced]
        values = {axis.var: new.var for axis, new in zip(reduced, axes)}
        values |= {axis.var: index + axis.dom.min for axis, index in zip(spatial, place)}
        chosen = place[len(spatial) :]
        is_chosen: Any = tirx.const(True, "bool")
        for axis, new, index in zip(reduced, axes, chosen):
            is_chosen = tirx.And(is_chosen, tirx.EQ(new.var, _as(new.var, index + axis.dom.min)))
        change = tirx.Select(is_chosen, one, zero)
        source = substitute(body.source[0], values)
        condition = substitute(body.condition, values)
        return reducer((change, source), axis=axes, where=condition)

    shape = [axis.dom.extent for axis in [*tensor.op.axis, *reduced]]
    return te.compute(shape, value, name=f"{tensor.op.name}.shares")[0]
