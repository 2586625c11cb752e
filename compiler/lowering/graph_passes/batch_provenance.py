"""Batch provenance: which batch element each slice of a tensor depends on.

Strassen's matmul adds neighboring rows of an operand and subtracts them again, so that rounding
errors, infinities and NaN of one row reach the other. Both rows must belong to one batch element.

The first axis of every input of `main` is the batch. Three cases follow:

1. All inputs have a first extent of 1: the whole inference is about one batch element, whatever its
   operators do. Dense layers over tokens and convolutions may pair rows.
2. Inputs have several batch elements: a convolution may pair rows if its images provably keep the
   order of the batch, since pairs stay within an image. The operators listed below propagate that.
   Rows of dense layers may not be paired: they may be batch elements, or tokens in unknown order.
3. Anything else, such as inputs with different first extents, is unknown: nothing may pair rows.

Recurrent layers have the batch on their second axis: with more than one row there, the first axis
was not the batch, and case 1 does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GenericConst

from ...ir.constants import shape_of_type, static_shape
from ...ir.op_facts import POINTWISE, WINDOW, facts_named
from ...ir.rewrite import functions_by_name
from ..selection.ops.recurrent import NAME as RECURRENT

ONE_SAMPLE = "baton.one_sample"
"""Attribute of `main`: all of its inputs are of one sample, whatever their shapes are."""


@dataclass(frozen=True)
class Samples:
    """A tensor whose first axis has equal blocks, each computed from one batch element."""

    count: int  # number of batch elements; 0 for a tensor that depends on no input
    # Index of the batch element; None for the whole batch, or for a function's own argument
    whose: int | None = None


CONSTANT = Samples(0)
Fact = Samples | None
"""None: nothing is known."""


@dataclass
class Provenance:
    is_one_sample: bool  # case 1 above
    # By name, to look up the results of calls
    functions: Mapping[str, relax.Function] = field(default_factory=dict)
    # Provenance of the parameters of each called function
    parameters: dict[str, tuple[Fact, ...]] = field(default_factory=dict)

    def rows_share_sample(self, function: relax.Function, name: str) -> Callable[[relax.Var], bool]:
        """Return a predicate: whether the matmul or convolution bound to a variable may pair rows.

        Passes may have rewritten `function`, the module's function `name`, since.
        """
        if self.is_one_sample:
            return lambda _: True
        known = self.parameters.get(name, ())
        unknown: tuple[Fact, ...] = (None,) * len(function.params)
        facts = _Walk(self.functions, {}).facts(
            function, known if len(known) == len(unknown) else unknown
        )
        convolutions = {
            binding.var
            for binding in _bindings(function)
            if _operator(binding.value).startswith("nn.conv")
        }
        return lambda var: var in convolutions and facts[var] is not None


def provenance(mod: tvm.IRModule) -> Provenance:
    """Propagate batch provenance through a module at operator level; nothing without `main`."""
    functions = functions_by_name(mod)
    main = functions.get("main")
    if main is None:
        return Provenance(False)
    if main.attrs and ONE_SAMPLE in main.attrs:
        return Provenance(True)
    inputs = _of_inputs(main)
    if inputs is None:
        return Provenance(False)
    is_batch_first = not any(map(_has_batch_second, functions.values()))
    if all(fact.count <= 1 for fact in inputs) and is_batch_first:
        return Provenance(True)
    found = Provenance(False, functions, {"main": tuple(inputs)})
    _Walk(functions, found.parameters).facts(main, inputs)
    return found


def _of_inputs(main: relax.Function) -> list[Samples] | None:
    """The first extent of each input; None if they differ or are unknown."""
    counts = []
    for var in main.params:
        shape = static_shape(var) if isinstance(var.ty, relax.TensorType) else None
        if shape is None:
            return None
        counts.append(shape[0] if shape else 0)
    return None if len(set(counts) - {0}) > 1 else [Samples(count) for count in counts]


def _has_batch_second(function: relax.Function) -> bool:
    """Whether a recurrent layer has several rows along its operand's second axis."""
    for binding in _bindings(function):
        if _operator(binding.value) == RECURRENT:
            shape = static_shape(binding.value.args[0])
            if shape is None or shape[1] > 1:
                return True
    return False


# --- through the operators ---------------------------------------------------------------


class _Walk:
    """Propagates batch provenance through functions; fills `parameters` with each argument's."""

    def __init__(
        self, functions: Mapping[str, relax.Function], parameters: dict[str, tuple[Fact, ...]]
    ) -> None:
        self._functions = functions
        self._parameters = parameters

    def facts(self, function: relax.Function, params: Sequence[Fact]) -> dict[Any, Fact]:
        facts: dict[Any, Fact] = dict(zip(function.params, params, strict=True))
        for binding in _bindings(function):
            value = getattr(binding, "value", None)
            facts[binding.var] = self._of(value, facts) if value is not None else None
        return facts

    def _of(self, expr: Any, facts: Mapping[Any, Fact]) -> Fact:
        if isinstance(expr, GenericConst):
            return CONSTANT
        if isinstance(expr, relax.Var):
            return facts.get(expr)
        if isinstance(expr, relax.TupleGetItem):
            return self._of(expr.tuple_value, facts)
        if isinstance(expr, relax.Tuple):
            return _together([self._of(each, facts) for each in expr.fields])
        if not isinstance(expr, relax.Call):
            return None
        if isinstance(expr.op, relax.GlobalVar):
            return self._of_function(expr, facts)
        operands = [
            each
            for arg in expr.args
            for each in (arg.fields if isinstance(arg, relax.Tuple) else [arg])
            if isinstance(each.ty, (relax.TensorType, relax.TupleType))
        ]
        known = [self._of(each, facts) for each in operands]
        if _operator(expr) == "concat" and _axes(expr.attrs.axis, expr) == {0}:
            return _joined(known)
        fact = _together(known)
        if fact is None or fact.count == 0:
            return fact
        read = [each for each, one in zip(operands, known) if one != CONSTANT]
        if fact.count == 1:
            # A value computed from a single batch element belongs to it.
            return fact
        return _kept(_operator(expr), expr, read, fact)

    def _of_function(self, call: relax.Call, facts: Mapping[Any, Fact]) -> Fact:
        name, known = call.op.name_hint, [self._of(arg, facts) for arg in call.args]
        function = self._functions.get(name)
        if function is None:
            return None
        fact = _together(known)
        if fact is not None and fact.count == 1:  # of each sample in turn
            known = [Samples(min(each.count, 1)) for each in known if each is not None]
        before = self._parameters.get(name, tuple(known))
        agreed = tuple(one if one == other else None for one, other in zip(before, known))
        self._parameters[name] = agreed
        inner = self.facts(function, known)
        result = self._of(function.body.body, inner)
        if result is not None and fact is not None and result == Samples(1):
            return fact
        return result


def _together(facts: Iterable[Fact]) -> Fact:
    """Provenance of a value computed from several; None if their batch elements differ."""
    several = set(facts)
    if None in several:
        return None
    several.discard(CONSTANT)
    return CONSTANT if not several else several.pop() if len(several) == 1 else None


def _joined(facts: Sequence[Fact]) -> Fact:
    """Provenance of a concatenation along the first axis."""
    if all(fact is not None and fact == Samples(1, i) for i, fact in enumerate(facts)):
        return Samples(len(facts))
    fact = _together(facts)
    return fact if fact is not None and fact.count <= 1 else None


def _kept(name: str, call: relax.Call, read: Sequence[relax.Expr], fact: Samples) -> Fact:
    """Provenance of a call that maps each block of its operands to a block of its result."""
    shape = _shape(call)
    shapes = [_shape(each) for each in read]
    if name == "strided_slice":
        return _slice(call, shapes[0], fact)
    if not shape or shape[0] % fact.count or any(not s or s[0] % fact.count for s in shapes):
        return None
    batch = facts_named(name).batch
    if batch == POINTWISE:
        alike = all(s[0] == shape[0] and len(s) == len(shape) for s in shapes)
    elif batch == WINDOW:
        attrs = call.attrs
        layout = str(getattr(attrs, "data_layout", "") or getattr(attrs, "layout", ""))
        alike = layout.startswith("N") and len(read) == 1 and read[0].same_as(call.args[0])
    elif batch:
        axes = getattr(call.attrs, batch)
        alike = axes is not None and 0 not in _axes(axes, read[0]) and len(read) == 1
    elif name == "concat":
        alike = all(s[0] == shape[0] for s in shapes)
    elif name == "permute_dims":
        axes = call.attrs.axes
        alike = axes is not None and int(axes[0]) % len(shape) == 0
    elif name == "expand_dims":
        alike = 0 not in _axes(call.attrs.axis, call)
    elif name == "matmul":
        # Rows of a matrix stay separate only if it is the left operand.
        alike = all(len(s) > 2 or each.same_as(call.args[0]) for s, each in zip(shapes, read))
        alike = alike and len({len(s) for s in shapes}) == 1 and shape[0] == shapes[0][0]
    else:
        alike = name in ("reshape", "flatten") and read[0].same_as(call.args[0])
    return fact if alike else None


def _slice(call: relax.Call, shape: Sequence[int], fact: Samples) -> Fact:
    """Provenance of a slice along inner axes, or of one batch element."""
    fields = [arg.fields if isinstance(arg, relax.Tuple) else None for arg in call.args[1:4]]
    if None in fields:
        return None
    axes, begin, end = ([_integer(each) for each in part or ()] for part in fields)
    if None in axes:
        return None
    at = {(axis or 0) % len(shape): ends for axis, *ends in zip(axes, begin, end)}
    if 0 not in at:
        return fact
    first, last = at[0]
    if list(at) != [0] or fact.count != shape[0] or first is None or last != first + 1:
        return None
    return Samples(1, first) if 0 <= first < fact.count else None


def _integer(expr: Any) -> int | None:
    value = getattr(expr, "value", None)
    value = getattr(value, "value", value)
    return value if isinstance(value, int) else None


def _axes(axes: Any, operand: relax.Expr) -> set[int]:
    """Axes as numbers from 0; 0 alone where they are not known."""
    shape = _shape(operand)
    if axes is None or not shape:
        return {0}
    listed = [axes] if isinstance(axes, (int, tvm.tirx.IntImm)) else list(axes)
    return {int(axis) % len(shape) for axis in listed}


def _shape(expr: relax.Expr) -> Sequence[int]:
    """Shape of a tensor or of the first field of a tuple; empty if unknown."""
    ty = expr.ty
    while isinstance(ty, relax.TupleType) and ty.fields:
        ty = ty.fields[0]
    return shape_of_type(ty) or ()


def _operator(expr: Any) -> str:
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.Op):
        return ""
    return str(expr.op.name).removeprefix("relax.")


def _bindings(function: relax.Function) -> Iterable[Any]:
    if isinstance(function.body, relax.SeqExpr):
        for block in function.body.blocks:
            yield from block.bindings
