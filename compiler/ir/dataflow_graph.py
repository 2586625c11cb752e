"""Index of a Relax function: its bindings, their readers, and what may move into a subgraph.

A binding is one of

* an operation: a call, a `match_cast`, a branch, a local function;
* a projection: one output of an operation or parameter that yields a tuple; it moves with the
  operation;
* transparent: a tuple, an alias, a constant, a shape; readers look through it, so that it
  never ties two regions together.

Everything is read from TVM once and numbered, since every look into a TVM object costs as much as
a hundred operations on numbers: bindings count from 0 in order, parameters are -1, -2, ...
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import IRModule, relax
from tvm.ir import Call, Op, Tuple, TupleGetItem, Var

from compiler.errors import PartitionError

_VARIABLES = frozenset([Var, relax.DataflowVar])
_size = tvm_ffi.get_global_func("ffi.ArraySize")
_item = tvm_ffi.get_global_func("ffi.ArrayGetItem")

OPERATION, PROJECTION, TRANSPARENT = "operation", "projection", "transparent"


class RelaxFunction:
    """The bindings of a Relax function, numbered in order.

    Consecutive dataflow blocks count as one, since all they hold is pure.

    `module`: the module in normal form. `variable`: name of `function` in it. `variables`,
    `values`: both sides of each binding. `callees`: of each call, such as an `Op` or a `GlobalVar`.
    `operands`: arguments of each call; None if all are plain variables, the same as in `reads`.
    `reads`: numbers of the variables in each value, repetitions included. `sources`: the same with
    transparent bindings seen through. `kinds`: OPERATION, PROJECTION or TRANSPARENT. `claimable`:
    whether a binding may move into a subgraph: an operator call in a dataflow block. `blocks`: the
    block of each binding. `is_dataflow`: whether each block is one. `domains`: the stretch of
    bindings that each may be moved in: a block, cut further where a `match_cast` defines symbolic
    sizes. Raises PartitionError: the module has no Relax function of that name.
    """

    def __init__(self, mod: IRModule, name: str = "main") -> None:
        functions = {variable.name_hint: function for variable, function in mod.functions_items()}
        if not isinstance(functions.get(name), relax.Function):
            names = ", ".join(sorted(functions)) or "none"
            raise PartitionError(f"the module has no Relax function {name!r}; functions: {names}")
        self.module = relax.transform.Normalize()(mod)
        self.variable = self.module.get_global_var(name)
        self.function = self.module[self.variable]
        self.parameters: list[Any] = items(self.function.params)
        self.bindings: list[Any] = []
        self.variables: list[Any] = []
        self.values: list[Any] = []
        self.callees: list[Any] = []
        self.operands: list[list[Any] | None] = []
        self.reads: list[list[int]] = []
        self.sources: list[list[int]] = []
        self.kinds: list[str] = []
        self.claimable: list[bool] = []
        self.blocks: list[int] = []
        self.is_dataflow: list[bool] = []
        self.domains: list[int] = []
        # By address, which is the hash of a variable: two references to one TVM object are
        # different Python objects, and `==` of expressions takes longer than the look-up.
        self._numbers = {hash(each): -1 - p for p, each in enumerate(self.parameters)}
        self._read()

    def number(self, expr: Any) -> int | None:
        """The number of a variable; None for a symbolic size and for all other expressions."""
        return self._numbers.get(hash(expr)) if type(expr) in _VARIABLES else None

    def variable_of(self, number: int) -> Any:
        return self.variables[number] if number >= 0 else self.parameters[-1 - number]

    def _read(self) -> None:
        domain = 0
        numbers, transparent = self._numbers, set[int]()
        for block in self.function.body.blocks:
            dataflow = isinstance(block, relax.DataflowBlock)
            if not (self.is_dataflow and dataflow and self.is_dataflow[-1]):
                self.is_dataflow.append(dataflow)
                domain += 1
            for binding in items(block.bindings):
                index = len(self.bindings)
                variable, value = binding.var, binding.value
                is_cast = type(binding) is relax.MatchCast
                callee = value.op if type(value) is Call else None
                operands = items(value.args) if callee is not None else None
                is_plain = operands is not None and _VARIABLES.issuperset(map(type, operands))
                read = operands if is_plain and type(callee) is Op else variables(value)
                reads = [numbers[key] for key in map(hash, read or ()) if key in numbers]
                is_clear = transparent.isdisjoint(reads)
                kind = OPERATION if is_cast or callee is not None else self._kind(value)
                if kind is TRANSPARENT:
                    transparent.add(index)
                domain += is_cast
                numbers[hash(variable)] = index
                self.bindings.append(binding)
                self.variables.append(variable)
                self.values.append(value)
                self.callees.append(callee)
                self.reads.append(reads)
                self.sources.append(reads if is_clear else self.sources_of(value))
                is_plain = is_plain and is_clear and len(reads) == len(operands or ())
                self.operands.append(None if is_plain else operands)
                self.kinds.append(kind)
                self.claimable.append(dataflow and type(callee) is Op and not is_cast)
                self.blocks.append(len(self.is_dataflow) - 1)
                self.domains.append(domain)
                domain += is_cast

    def _kind(self, value: Any) -> str:
        if isinstance(value, TupleGetItem):
            base = self.resolve(value.tuple_value)
            return TRANSPARENT if isinstance(base, Tuple) else PROJECTION
        return OPERATION if isinstance(value, (relax.If, relax.Function)) else TRANSPARENT

    def sources_of(self, expr: Any) -> list[int]:
        """Numbers of the variables in an expression, transparent bindings seen through."""
        found = []
        for variable in variables(self.resolve(expr)):
            number = self.number(variable)
            if number is None:
                continue
            is_transparent = number >= 0 and self.kinds[number] is TRANSPARENT
            found += self.sources[number] if is_transparent else [number]
        return found

    def resolve(self, expr: Any) -> Any:
        """The expression behind transparent bindings: a variable, constant, tuple or shape."""
        while True:
            if type(expr) in _VARIABLES:
                number = self.number(expr)
                if number is None or number < 0 or self.kinds[number] != TRANSPARENT:
                    return expr
                expr = self.values[number]
            elif isinstance(expr, TupleGetItem):
                base = self.resolve(expr.tuple_value)
                if not isinstance(base, Tuple):
                    return expr
                expr = base.fields[expr.index]
            else:
                return expr

    def entry(self, number: int) -> tuple[int, tuple[int, ...]]:
        """The operation or parameter that a variable is part of, and the output indices to it."""
        path: tuple[int, ...] = ()
        while number >= 0 and self.kinds[number] is PROJECTION:
            value = self.values[number]
            path = (int(value.index), *path)
            base = self.number(self.resolve(value.tuple_value))
            assert base is not None, "a projection is of a variable"
            number = base
        return number, path


def items(array: Any) -> list[Any]:
    """The items of a TVM array; iterating over it or slicing it takes several times longer."""
    return [_item(array, position) for position in range(_size(array))]


def variables(expr: Any) -> list[Any]:
    """Relax variables that an expression reads, in order, repetitions included."""
    if type(expr) in _VARIABLES:  # first, and much faster than isinstance
        return [expr]
    if isinstance(expr, Call):
        operands = items(expr.args)
        if isinstance(expr.op, Var):
            operands.insert(0, expr.op)
    elif isinstance(expr, Tuple):
        operands = items(expr.fields)
    elif isinstance(expr, TupleGetItem):
        return variables(expr.tuple_value)
    elif isinstance(expr, (relax.If, relax.Function, relax.SeqExpr)):
        return list(relax.analysis.free_vars(expr))
    else:
        return []
    found: list[Any] = []
    for operand in operands:
        if type(operand) in _VARIABLES:
            found.append(operand)
        else:
            found += variables(operand)
    return found
