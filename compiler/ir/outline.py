"""Outline bindings of a Relax function into new functions.

    before   main(x, w):  a = exp(x);  b = add(a, w);  c = log(b);  d = multiply(a, c)
    after outlining {a, b}
             f(x, w):     a = exp(x);  b = add(a, w);  return (a, b)
             main(x, w):  t = f(x, w);  a = t[0];  b = t[1];  c = log(b);  d = multiply(a, c)

Constants move into the function, so that its compiler can fold them. Every other outside value that
it reads becomes a parameter. A function with one output returns it without a tuple. The remaining
bindings keep their variables and, as far as the data allows, their order.

Identical groups can share one function. Constants that differ between them then become parameters.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import IRModule, relax
from tvm.ir import Call, GenericConst, GlobalVar, Tuple, TupleGetItem, Var, make_node

from compiler.errors import PartitionError

from .dataflow_graph import OPERATION, PROJECTION, TRANSPARENT, RelaxFunction, items, variables
from .dynamic_shape import symbols_of
from .scopes import rebuilt, set_type
from .unique_names import Names

# What the classes of those names call, without the conversions of arguments before it, which take
# most of the time.
_new_var = tvm_ffi.get_global_func("ir.Var")
_new_dataflow_var = tvm_ffi.get_global_func("relax.DataflowVar")
_new_call = tvm_ffi.get_global_func("ir.Call")
_new_binding = tvm_ffi.get_global_func("relax.VarBinding")

_Entry = tuple[int, tuple[int, ...]]
"""Number of an operation or parameter, and the output indices to a part of what it yields."""

INPUT_NAMES = "baton.input_names"
"""Attribute of an outlined function: JSON list with the parameter of `main` behind each input."""

ON_COMPILE_ERROR = "baton.on_compile_error"
"""Attribute of an outlined function: "back" or "split", what the build does if it fails."""

_OWN_TO_A_GROUP = ("baton.subgraph_id", INPUT_NAMES)
"""Attributes in which functions may differ that are otherwise identical."""


@dataclass
class Group:
    """Operations to outline together."""

    members: list[int]  # bindings of `main`, operations of one domain; projections follow
    name: str  # wanted name of the function; a number is appended if it is taken
    attrs: Mapping[str, Any] = field(default_factory=dict)  # attributes of the function
    # If not None, also set `baton.input_names` with the names of these parameters.
    named_inputs: Sequence[Any] | None = None
    lift_constants: bool = False  # constants become parameters of the function, not part of it
    order: list[int] = field(default_factory=list)  # bindings whose values are the first results


def outline(main: RelaxFunction, groups: Sequence[Group], *, share: bool = False) -> IRModule:
    """A new module in which each group is a private function that the remaining function calls.

    The groups are disjoint. With `share`, identical groups become one function, which has the
    attributes of the first; an input name in which they differ becomes "". Raises PartitionError:
    the groups, each contracted to one call, would feed each other in a circle.
    """
    group_of: list[int | None] = [None] * len(main.bindings)
    for number, group in enumerate(groups):
        for index in group.members:
            group_of[index] = number
    for index, kind in enumerate(main.kinds):
        owner = main.entry(index)[0] if kind is PROJECTION else -1
        if owner >= 0 and group_of[owner] is not None:
            group_of[index] = group_of[owner]
    members: list[list[int]] = [[] for _ in groups]
    for index, own in enumerate(group_of):
        if own is not None:
            members[own].append(index)
    escaping = _escaping(main, group_of)
    has_sizes = bool(_symbolic_sizes(main.function))
    found = _found_extents(main) if has_sizes else {}

    def body(number: int, lift_constants: bool) -> _Outlined:
        inside = members[number]
        outputs = [i for i in inside if i in escaping] or inside[-1:]
        group = groups[number]
        lift = lift_constants or group.lift_constants
        own = [symbol for symbol, index in found.items() if group_of[index] == number]
        return _Outlined(main, group, inside, outputs, lift, has_sizes, own)

    outlined = [body(number, False) for number in range(len(groups))]
    classes = [[number] for number in range(len(groups))]
    if share:
        lifted = [body(number, True) for number in range(len(groups))]
        classes = _identical([each.function for each in lifted])
        for same in classes:
            if len(_identical([outlined[number].function for number in same])) > 1:
                for number in same:
                    outlined[number] = lifted[number]
    functions = {variable: function for variable, function in main.module.functions_items()}
    names = Names(variable.name_hint for variable in functions)
    for same in sorted(classes):
        function = _common([outlined[number].function for number in same])
        callee = GlobalVar(names.unique(groups[same[0]].name))
        if "global_symbol" in (function.attrs or {}):
            function = function.with_attr("global_symbol", callee.name_hint)
        set_type(callee, function.ty)
        functions[callee] = function
        for number in same:
            outlined[number].callee = callee
    functions[main.variable] = _rebuild(main, group_of, outlined, groups, found)
    old = main.module
    return IRModule(functions, attrs=old.attrs, global_infos=old.global_infos)


def _symbolic_sizes(function: relax.Function) -> list[Any]:
    return [
        *relax.analysis.defined_symbolic_vars(function),
        *relax.analysis.free_symbolic_vars(function),
    ]


def _found_extents(main: RelaxFunction) -> dict[Any, int]:
    """The symbolic sizes that bindings define, by symbol the number of the binding.

    They are those of a `match_cast`, and those that an operation finds from values: nothing before
    it mentions them.
    """
    known = {symbol for parameter in main.parameters for symbol in symbols_of(parameter.ty)}
    found: dict[Any, int] = {}
    for index, binding in enumerate(main.bindings):
        known.update(symbol for symbol in _symbols_read(main, index) if symbol not in found)
        types = [binding.var.ty]
        if isinstance(main.values[index], relax.Function):
            inside = [each for block in main.values[index].body.blocks for each in block.bindings]
            types += [each.var.ty for each in inside]
        new = [symbol for ty in types for symbol in symbols_of(ty) if symbol not in known]
        known.update(new)
        if main.kinds[index] is OPERATION:
            found.update(dict.fromkeys(new, index))
    return found


def _symbols_read(main: RelaxFunction, index: int) -> list[Any]:
    """The symbols in the shapes that a call takes as operands."""
    arguments = items(main.values[index].args) if main.callees[index] is not None else []
    shapes = map(main.resolve, arguments)
    return [
        symbol
        for shape in shapes
        if isinstance(shape, relax.ShapeExpr)
        for symbol in symbols_of(shape.ty)
    ]


def _erased(ty: Any, symbols: Sequence[Any]) -> Any:
    """A type without the extents of tensors whose extents mention some symbols."""
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([_erased(field, symbols) for field in ty.fields])
    if isinstance(ty, relax.TensorType) and not {*symbols_of(ty)}.isdisjoint(symbols):
        return relax.TensorType(dtype=ty.dtype, ndim=ty.ndim)
    return ty


def _identical(functions: Sequence[Any]) -> list[list[int]]:
    """Group functions that differ in per-function attributes only; constants compare by content."""
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


def _escaping(main: RelaxFunction, group_of: Sequence[int | None]) -> set[int]:
    """Bindings of a group that something outside the group reads."""
    found = {number for number in main.sources_of(main.function.body.body) if number >= 0}
    for index, kind in enumerate(main.kinds):
        if kind is not TRANSPARENT:
            reader = group_of[index]
            for number in main.sources[index]:
                if number >= 0 and group_of[number] != reader:
                    found.add(number)
    return {number for number in found if group_of[number] is not None}


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
        has_sizes: bool,
        found: Sequence[Any],
    ) -> None:
        self._main = main
        self._found = found  # symbolic sizes that an operation of the group finds
        self._lift_constants = lift_constants
        self._has_sizes = has_sizes
        self._members = members
        self._inner: dict[int, Any] = {}  # by number in main: what it is inside
        self._lifted: dict[int, Any] = {}  # by address of a constant: the parameter for it
        self._parameter_of: dict[_Entry, Any] = {}
        self._parameters: list[Any] = []
        self.sizes: list[Any] = []  # symbolic sizes that no parameter's shape gives
        self.inputs: list[tuple[int | None, Any, tuple[int, ...]]] = []
        """Per input the number of a variable, that variable or a constant, and the part of it."""
        self._outputs: dict[_Entry, int] = {}
        self._aliases: list[tuple[int, int, tuple[int, ...]]] = []  # number, output, part of it
        self._order_outputs(escaping, group.order)
        self._results = set(self._outputs.values())
        self.function = self._function(group)

    def _order_outputs(self, escaping: list[int], first: list[int]) -> None:
        for root, path, number in sorted((*self._main.entry(n), n) for n in escaping):
            known = [n for n in range(len(path) + 1) if (root, path[:n]) in self._outputs]
            if known:
                whole = self._outputs[root, path[: known[0]]]
                self._aliases.append((number, whole, path[known[0] :]))
            else:
                self._outputs[root, path] = number
        rank = {number: place for place, number in reversed([*enumerate(first)])}
        ordered = sorted(self._outputs.items(), key=lambda item: rank.get(item[1], len(first)))
        self._outputs = dict(ordered)

    def _function(self, group: Group) -> relax.Function:
        """The function, and with it `inputs`."""
        bindings = [self._moved(index) for index in self._members]
        results = [self._inner[number] for number in self._outputs.values()]
        result = results[0] if len(results) == 1 else Tuple(results)
        body = _sequence([relax.DataflowBlock(bindings)], result)
        ty = result.ty
        if self._has_sizes:
            function = relax.Function(self._parameters, body, ty, True)
            free = relax.analysis.free_symbolic_vars(function)
            self.sizes = [symbol for symbol in free if symbol not in self._found]
            ty = _erased(ty, self._found) if self._found else ty
        if self.sizes:
            self._parameters.append(Var("sizes", relax.ShapeType(self.sizes)))
        attrs = dict(group.attrs)
        if group.named_inputs is not None:
            named = {hash(variable) for variable in group.named_inputs}
            names = [
                variable.name if hash(variable) in named and not part else ""
                for _, variable, part in self.inputs
            ]
            attrs[INPUT_NAMES] = json.dumps(names + [""] * bool(self.sizes))
        function = relax.Function(
            self._parameters, body, ty, True, make_node("ir.DictAttrs", **attrs) if attrs else None
        )
        if self._has_sizes and relax.analysis.defined_symbolic_vars(function):
            return relax.utils.copy_with_new_vars(function)
        return function

    def _moved(self, index: int) -> Any:
        variable, value = self._main.variables[index], self._value(index)
        if index in self._results:
            variable = _new_var(variable.name, variable.ty, None)
        elif type(variable) is not relax.DataflowVar:
            variable = _new_dataflow_var(variable.name, variable.ty, None)
        self._inner[index] = variable  # main keeps no variable that is read only in here
        binding = self._main.bindings[index]
        if type(binding) is relax.MatchCast:
            return relax.MatchCast(variable, value, binding.ty)
        return _new_binding(variable, value, None)

    def _value(self, index: int) -> Any:
        """The right-hand side of a binding in terms of the function's own variables."""
        main = self._main
        value = main.values[index]
        if main.callees[index] is None or main.operands[index] is not None:
            return self._inside(value)
        arguments = [self._variable(number) for number in main.reads[index]]
        return _new_call(
            value.ty, main.callees[index], arguments, value.attrs, value.ty_args, value.span
        )

    def _variable(self, number: int) -> Any:
        """The inner value of a variable of main that is not transparent."""
        if number not in self._inner:
            variable = self._main.variable_of(number)
            self._inner[number] = self._input(number, variable, (), variable.ty)
        return self._inner[number]

    def _inside(self, expr: Any) -> Any:
        """The expression in terms of the function's own variables."""
        expr = self._main.resolve(expr)
        if isinstance(expr, Var):
            number = self._main.number(expr)
            return expr if number is None else self._variable(number)  # None: a symbolic size
        if isinstance(expr, Call):
            arguments = [self._inside(argument) for argument in items(expr.args)]
            callee = self._inside(expr.op) if isinstance(expr.op, Var) else expr.op
            return Call(callee, arguments, expr.attrs, expr.ty_args, expr.span, expr.ty)
        if isinstance(expr, Tuple):
            return Tuple([self._inside(part) for part in items(expr.fields)])
        if isinstance(expr, TupleGetItem):
            return TupleGetItem(self._inside(expr.tuple_value), expr.index)
        if self._lift_constants and isinstance(expr, GenericConst):
            return self._lift(expr)
        return expr

    def _lift(self, constant: Any) -> Any:
        """The parameter for a constant; several uses of one constant share it."""
        address = hash(constant)
        if address not in self._lifted:
            self._lifted[address] = Var(f"constant_{len(self._parameters)}", constant.ty)
            self._parameters.append(self._lifted[address])
            self.inputs.append((None, constant, ()))
        return self._lifted[address]

    def _input(self, number: int, variable: Any, part: tuple[int, ...], ty: Any) -> Any:
        """The parameter for a variable of main; a tuple of them for a tuple."""
        if isinstance(ty, relax.TupleType):
            return Tuple(
                [self._input(number, variable, (*part, i), t) for i, t in enumerate(ty.fields)]
            )
        root, path = self._main.entry(number)
        entry = (root, path + part)
        if entry not in self._parameter_of:
            name = "_".join([variable.name, *map(str, part)])
            self._parameter_of[entry] = _new_var(name, ty, None)
            self._parameters.append(self._parameter_of[entry])
            self.inputs.append((number, variable, part))
        return self._parameter_of[entry]

    def call(self) -> list[Any]:
        """Bindings of `main` that take the group's place."""
        bindings: list[Any] = []

        def bind(name: str, value: Any, ty: Any) -> Any:
            variable = _new_dataflow_var(name, ty, None)
            bindings.append(_new_binding(variable, value, None))
            return variable

        def select(variable: Any, part: tuple[int, ...]) -> Any:
            for i in part:
                value = TupleGetItem(variable, i)
                variable = bind(f"{variable.name}_{i}", value, value.ty)
            return variable

        arguments = [select(variable, part) for _, variable, part in self.inputs]
        if self.sizes:
            arguments.append(relax.ShapeExpr(self.sizes))
        outputs = [self._main.variables[number] for number in self._outputs.values()]

        def bind_output(output: Any, value: Any) -> None:
            """Bind a result; extents that the function finds are known from here on."""
            if value.ty is output.ty or value.ty.same_as(output.ty):
                bindings.append(_new_binding(output, value, None))
            else:
                raw = bind(output.name, value, value.ty)
                bindings.append(relax.MatchCast(output, raw, output.ty))

        types = [_erased(each.ty, self._found) if self._found else each.ty for each in outputs]
        if len(outputs) == 1:
            bind_output(outputs[0], _new_call(types[0], self.callee, arguments, None, [], None))
        else:
            ty = relax.TupleType(types)
            value = _new_call(ty, self.callee, arguments, None, [], None)
            result = bind(self.callee.name_hint, value, ty)
            for i, output in enumerate(outputs):
                bind_output(output, TupleGetItem(result, i))
        for number, whole, part in self._aliases:
            value = select(self._main.variables[whole], part)
            bindings.append(_new_binding(self._main.variables[number], value, None))
        return bindings


def _sequence(blocks: list[Any], body: Any) -> relax.SeqExpr:
    return set_type(relax.SeqExpr(blocks, body), body.ty)


def _rebuild(
    main: RelaxFunction,
    group_of: Sequence[int | None],
    outlined: Sequence[_Outlined],
    groups: Sequence[Group],
    found: Mapping[Any, int],
) -> relax.Function:
    """`main` with calls in place of the groups.

    A call stands where its group's last member stood, unless a reader of its outputs comes before;
    then the reader moves after the call.
    """
    last = [0] * len(groups)  # the binding that each group's call replaces
    for index, number in enumerate(group_of):
        if number is not None:
            last[number] = index
    match_call = {index: outlined[number] for number, index in enumerate(last)}
    units = sorted((*_remaining(main, group_of), *last))

    readers: list[list[int]] = [[] for _ in group_of]
    missing = [0] * len(group_of)
    for unit in units:
        call = match_call.get(unit)
        reads = main.reads[unit] if call is None else [number for number, *_ in call.inputs]
        symbols: Sequence[Any] = ()
        if found and call is None:
            symbols = [*symbols_of(main.variables[unit].ty), *_symbols_read(main, unit)]
        elif found and call is not None:
            symbols = call.sizes
        defining = [found[symbol] for symbol in symbols if symbol in found]
        for source in {*reads, *defining} - {unit} if defining else reads:
            if source is not None and source >= 0:
                number = group_of[source]
                readers[source if number is None else last[number]].append(unit)
                missing[unit] += 1

    blocks: list[list[Any]] = [[] for _ in main.is_dataflow]
    ready = [unit for unit in units if missing[unit] == 0]  # ascending, hence a heap
    emitted = 0
    while ready:
        unit = heapq.heappop(ready)
        emitted += 1
        call = match_call.get(unit)
        blocks[main.blocks[unit]] += [main.bindings[unit]] if call is None else call.call()
        for reader in readers[unit]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    if emitted != len(units):
        stuck = sorted(group.name for group, unit in zip(groups, last) if missing[unit] > 0)
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
    return rebuilt(main.function, sequence)


def _remaining(main: RelaxFunction, group_of: Sequence[int | None]) -> list[int]:
    """Bindings that stay in `main`; transparent ones only if something there reads them."""
    needed = {main.number(variable) for variable in variables(main.function.body.body)}
    kept: list[int] = []
    for index in reversed(range(len(main.bindings))):
        if group_of[index] is None and (main.kinds[index] is not TRANSPARENT or index in needed):
            kept.append(index)
            needed.update(main.reads[index])
    return kept
