"""Moving bindings of a Relax function into functions of their own.

Before::

    main(x, w):  a = exp(x);  b = add(a, w);  c = log(b);  d = multiply(a, c)

After outlining {a, b}::

    f(x, w):     a = exp(x);  b = add(a, w);  return (a, b)
    main(x, w):  t = f(x, w);  a = t[0];  b = t[1];  c = log(b);  d = multiply(a, c)

Constants move into the function, so that whoever compiles it can fold them; everything else that
is read from outside becomes a parameter of the function. A function with one output returns it as
it is. What stays behind keeps its variables and, as far as the data allows, its order.

Groups that do the same can share one function. Then constants that differ between them become
parameters of it.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import IRModule, relax
from tvm.ir import (
    Call,
    GenericConst,
    GlobalVar,
    Tuple,
    TupleGetItem,
    Var,
)
from tvm.relax.expr import _update_type

from compiler.errors import PartitionError

from .graph import Names
from .identity_map import IdentityMap
from .relax_function import PROJECTION, TRANSPARENT, RelaxFunction, variables

INPUT_NAMES = "baton.input_names"
"""Attribute of an outlined function: JSON list with the parameter of `main` behind each input."""

ON_COMPILE_ERROR = "baton.on_compile_error"
"""Attribute of an outlined function: "back" or "split", what the build does if it fails."""

COMPILE_OPTIONS = "baton.compile_options"
"""Attribute of an outlined function that its backend compiles itself: options, as JSON."""

_OWN_TO_A_GROUP = ("baton.subgraph_id", INPUT_NAMES)
"""Attributes in which functions may differ that are otherwise identical."""


@dataclass
class Group:
    """Operations to outline together.

    Attributes
    ----------
    members : list of int
        Bindings of `main`, all operations of one domain. Their projections come along.
    name : str
        Wanted name of the function; a number is appended if it is taken.
    attrs : mapping of str to object
        Attributes of the function.
    record_inputs : bool
        Also set `baton.input_names`.
    """

    members: list[int]
    name: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    record_inputs: bool = False


def outline(main: RelaxFunction, groups: Sequence[Group], *, share: bool = False) -> IRModule:
    """A new module in which each group is a private function that the remaining function calls.

    Parameters
    ----------
    main : RelaxFunction
        The function to take apart, mostly `main`; neither it nor its module is changed.
    groups : sequence of Group
        Disjoint.
    share : bool
        Identical groups become one function, the attributes of which are those of the first;
        an input name in which they differ becomes "".

    Raises
    ------
    PartitionError
        The groups, each contracted to one call, would feed each other in a circle.
    """
    group_of = {index: number for number, group in enumerate(groups) for index in group.members}
    for index, kind in enumerate(main.kinds):
        if kind == PROJECTION:
            owner = main.owner(index)
            if owner is not None and owner in group_of:
                group_of[index] = group_of[owner]
    members: list[list[int]] = [[] for _ in groups]
    for index in sorted(group_of):
        members[group_of[index]].append(index)
    escaping = _escaping(main, group_of)

    module = main.module.clone()
    names = Names(variable.name_hint for variable in module.get_global_vars())

    def body(number: int, lift_constants: bool) -> _Outlined:
        inside = members[number]
        outputs = [i for i in inside if i in escaping] or inside[-1:]
        return _Outlined(main, groups[number], inside, outputs, lift_constants)

    outlined = [body(number, False) for number in range(len(groups))]
    classes = [[number] for number in range(len(groups))]
    if share:
        lifted = [body(number, True) for number in range(len(groups))]
        classes = _identical([each.function for each in lifted])
        for same in classes:
            if len(_identical([outlined[number].function for number in same])) > 1:
                for number in same:
                    outlined[number] = lifted[number]
    for same in sorted(classes):
        function = _common([outlined[number].function for number in same])
        callee = GlobalVar(names.unique(groups[same[0]].name))
        _update_type(callee, function.ty)
        module[callee] = function
        for number in same:
            outlined[number].callee = callee
    module[main.variable] = _rebuild(main, group_of, outlined, groups)
    return module


def _identical(functions: Sequence[Any]) -> list[list[int]]:
    """Positions of functions, those together that differ in nothing but attributes of their own.

    Constants are compared by content.
    """
    classes: dict[int, list[list[int]]] = {}
    bare = [function.without_attr(_OWN_TO_A_GROUP[0]) for function in functions]
    for name in _OWN_TO_A_GROUP[1:]:
        bare = [function.without_attr(name) for function in bare]
    for number, function in enumerate(bare):
        alike = classes.setdefault(tvm_ffi.structural_hash(function), [])
        for same in alike:
            if tvm_ffi.structural_equal(bare[same[0]], function):
                same.append(number)
                break
        else:
            alike.append([number])
    return [same for alike in classes.values() for same in alike]


def _common(functions: Sequence[Any]) -> Any:
    """The first of identical functions, without the input names that not all of them have."""
    first = functions[0]
    if len(functions) == 1 or INPUT_NAMES not in first.attrs:
        return first
    names = [json.loads(str(function.attrs[INPUT_NAMES])) for function in functions]
    common = [each[0] if len(set(each)) == 1 else "" for each in zip(*names, strict=True)]
    return first.with_attr(INPUT_NAMES, json.dumps(common))


def _escaping(main: RelaxFunction, group_of: Mapping[int, int]) -> set[int]:
    """Bindings of a group that something outside the group reads."""
    found: set[int] = set()

    def read(expr: Any, reader: int | None) -> None:
        for variable in main.sources(expr):
            index = main.index_of.get(variable)
            if index is not None and group_of.get(index, reader) != reader:
                found.add(index)

    for index, kind in enumerate(main.kinds):
        if kind != TRANSPARENT:
            read(main.bindings[index].value, group_of.get(index))
    read(main.function.body.body, None)
    return found


class _Outlined:
    """One group: the function it becomes, and the call that replaces it.

    Inputs and outputs are entries, parts of what an operation or parameter yields, each passed
    once: main may bind one entry to several variables.
    """

    callee: GlobalVar

    def __init__(
        self,
        main: RelaxFunction,
        group: Group,
        members: list[int],
        escaping: list[int],
        lift_constants: bool,
    ) -> None:
        self._main = main
        self._lift_constants = lift_constants
        self._members = members
        self._inner: IdentityMap[Any] = IdentityMap()  # by variable of main: what it is inside
        self._parameter_of: dict[Any, Any] = {}  # entry -> parameter of the function
        self._parameters: list[Any] = []
        self._sizes: list[Any] = []  # symbolic sizes that no parameter's shape gives
        self.inputs: list[tuple[Any, tuple[int, ...]]] = []  # (variable or constant, part of it)
        self._outputs: dict[tuple[int, tuple[int, ...]], Any] = {}  # entry -> variable of main
        self._aliases: list[tuple[Any, Any, tuple[int, ...]]] = []  # variable, output, part of it
        self._order_outputs(escaping)
        self._results = set(self._outputs.values())
        self.function = self._function(group)

    def _order_outputs(self, escaping: list[int]) -> None:
        found = []
        for index in escaping:
            variable = self._main.bindings[index].var
            root, path = self._main.entry(variable)
            found.append((self._main.index_of[root], path, index, variable))
        for root, path, _, variable in sorted(found, key=lambda entry: entry[:3]):
            known = [n for n in range(len(path) + 1) if (root, path[:n]) in self._outputs]
            if known:
                whole = self._outputs[root, path[: known[0]]]
                self._aliases.append((variable, whole, path[known[0] :]))
            else:
                self._outputs[root, path] = variable

    def _function(self, group: Group) -> relax.Function:
        """The function, and with it `inputs`."""
        bindings = [self._moved(index) for index in self._members]
        results = [self._inner[variable] for variable in self._outputs.values()]
        result = results[0] if len(results) == 1 else Tuple(results)
        body = _sequence([relax.DataflowBlock(bindings)], result)
        function = relax.Function(self._parameters, body, result.ty, True)
        self._sizes = list(relax.analysis.free_symbolic_vars(function))
        if self._sizes:
            self._parameters.append(Var("sizes", relax.ShapeType(self._sizes)))
            function = relax.Function(self._parameters, body, result.ty, True)
        if relax.analysis.defined_symbolic_vars(function):
            function = relax.utils.copy_with_new_vars(function)
        attrs = dict(group.attrs)
        if group.record_inputs:
            names = [
                variable.name if variable in self._main.parameters and not part else ""
                for variable, part in self.inputs
            ]
            attrs[INPUT_NAMES] = json.dumps(names + [""] * bool(self._sizes))
        return function.with_attrs(attrs) if attrs else function

    def _moved(self, index: int) -> Any:
        variable = self._main.bindings[index].var
        value = self._inside(self._main.bindings[index].value)
        kind = Var if variable in self._results else relax.DataflowVar
        self._inner[variable] = kind(variable.name, variable.ty)
        return relax.VarBinding(self._inner[variable], value)

    def _inside(self, expr: Any) -> Any:
        """The expression in terms of the function's own variables."""
        if isinstance(expr, Var):
            if expr in self._inner:
                return self._inner[expr]
            source = self._main.resolve(expr)
            if source is not expr and not source.same_as(expr):
                return self._inside(source)
            if expr not in self._main.index_of and expr not in self._main.parameters:
                return expr  # a symbolic size
            self._inner[expr] = self._input(expr, (), expr.ty)
            return self._inner[expr]
        if isinstance(expr, Call):
            arguments = [self._inside(argument) for argument in expr.args[:]]
            callee = self._inside(expr.op) if isinstance(expr.op, Var) else expr.op
            return Call(callee, arguments, expr.attrs, expr.ty_args, expr.span, expr.ty)
        if isinstance(expr, Tuple):
            return Tuple([self._inside(part) for part in expr.fields[:]])
        if isinstance(expr, TupleGetItem):
            return TupleGetItem(self._inside(expr.tuple_value), expr.index)
        if self._lift_constants and isinstance(expr, GenericConst):
            return self._lifted(expr)
        return expr

    def _lifted(self, constant: Any) -> Any:
        """The parameter for a constant; several uses of one constant share it."""
        if constant not in self._inner:
            self._inner[constant] = Var(f"constant_{len(self._parameters)}", constant.ty)
            self._parameters.append(self._inner[constant])
            self.inputs.append((constant, ()))
        return self._inner[constant]

    def _input(self, variable: Any, part: tuple[int, ...], ty: Any) -> Any:
        """The parameter for a variable of main; a tuple of them for a tuple."""
        if isinstance(ty, relax.TupleType):
            return Tuple([self._input(variable, (*part, i), t) for i, t in enumerate(ty.fields)])
        root, path = self._main.entry(variable)
        entry = (root, path + part)
        if entry not in self._parameter_of:
            name = "_".join([variable.name, *map(str, part)])
            self._parameter_of[entry] = Var(name, ty)
            self._parameters.append(self._parameter_of[entry])
            self.inputs.append((variable, part))
        return self._parameter_of[entry]

    def call(self) -> list[Any]:
        """Bindings of `main` that take the group's place."""
        bindings: list[Any] = []

        def bind(name: str, value: Any, ty: Any) -> Any:
            bindings.append(relax.VarBinding(relax.DataflowVar(name, ty), value))
            return bindings[-1].var

        def select(variable: Any, part: tuple[int, ...]) -> Any:
            for i in part:
                value = TupleGetItem(variable, i)
                variable = bind(f"{variable.name}_{i}", value, value.ty)
            return variable

        arguments = [select(variable, part) for variable, part in self.inputs]
        if self._sizes:
            arguments.append(relax.ShapeExpr(self._sizes))
        outputs = list(self._outputs.values())
        if len(outputs) == 1:
            value = Call(self.callee, arguments, ret_ty=outputs[0].ty)
            bindings.append(relax.VarBinding(outputs[0], value))
        else:
            ty = relax.TupleType([output.ty for output in outputs])
            result = bind(self.callee.name_hint, Call(self.callee, arguments, ret_ty=ty), ty)
            for i, output in enumerate(outputs):
                bindings.append(relax.VarBinding(output, TupleGetItem(result, i)))
        for variable, output, part in self._aliases:
            bindings.append(relax.VarBinding(variable, select(output, part)))
        return bindings


def _sequence(blocks: list[Any], body: Any) -> relax.SeqExpr:
    sequence = relax.SeqExpr(blocks, body)
    _update_type(sequence, body.ty)
    return sequence


def _rebuild(
    main: RelaxFunction,
    group_of: Mapping[int, int],
    outlined: Sequence[_Outlined],
    groups: Sequence[Group],
) -> relax.Function:
    """`main` with calls in place of the groups.

    A call stands, in the order of bindings, where the last member of its group stood, unless
    something that reads its outputs comes before; then that moves behind the call.
    """
    last: dict[int, int] = {}  # group -> the binding its call stands for
    for index, number in sorted(group_of.items()):
        last[number] = index
    call_of = {index: number for number, index in last.items()}
    unit_of = {index: index for index in _remaining(main, group_of)}
    unit_of.update((index, last[number]) for index, number in group_of.items())

    readers: dict[int, list[int]] = {unit: [] for unit in unit_of.values()}
    missing = dict.fromkeys(readers, 0)
    for unit in readers:
        if unit in call_of:
            reads = [variable for variable, _ in outlined[call_of[unit]].inputs]
        else:
            reads = main.reads(unit)
        for variable in reads:
            source = main.index_of.get(variable)
            if source is not None:
                readers[unit_of[source]].append(unit)
                missing[unit] += 1

    blocks: list[list[Any]] = [[] for _ in main.is_dataflow]
    ready = [(main.domains[unit], unit) for unit, count in missing.items() if count == 0]
    heapq.heapify(ready)
    emitted = 0
    while ready:
        _, unit = heapq.heappop(ready)
        emitted += 1
        new = outlined[call_of[unit]].call() if unit in call_of else [main.bindings[unit]]
        blocks[main.blocks[unit]] += new
        for reader in readers[unit]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, (main.domains[reader], reader))
    if emitted != len(missing):
        stuck = sorted(groups[number].name for unit, number in call_of.items() if missing[unit] > 0)
        raise PartitionError(
            f"contracting {', '.join(stuck)} would make {main.variable.name_hint!r} cyclic: "
            "a value leaves a group and comes back into it, or two groups feed each other; "
            "contract fewer bindings"
        )
    sequence = _sequence(
        [
            relax.DataflowBlock(bindings) if dataflow else relax.BindingBlock(bindings)
            for bindings, dataflow in zip(blocks, main.is_dataflow, strict=True)
            if bindings
        ],
        main.function.body.body,
    )
    old = main.function
    return relax.Function(old.params, sequence, old.ret_ty, old.is_pure, old.attrs, old.span)


def _remaining(main: RelaxFunction, group_of: Mapping[int, int]) -> list[int]:
    """Bindings that stay in `main`; transparent ones only if something there reads them."""
    needed = set(variables(main.function.body.body))
    kept: list[int] = []
    for index in reversed(range(len(main.bindings))):
        unread = main.kinds[index] == TRANSPARENT and main.bindings[index].var not in needed
        if index not in group_of and not unread:
            kept.append(index)
            needed.update(main.reads(index))
    return kept[::-1]
