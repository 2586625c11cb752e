"""Reading a Relax function: its bindings, who reads whom, and what may move into a subgraph.

A binding is one of

* an operation: a call, a `match_cast`, a branch, a local function;
* a projection: one output of an operation or parameter that yields a tuple; it goes wherever the
  operation goes;
* transparent: a tuple, another name of something, a constant, a shape; whoever reads it reads
  through it, so that it never ties two regions together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import IRModule, relax
from tvm.ir import Call, Op, Tuple, TupleGetItem, Var

from compiler.errors import PartitionError

from .identity_map import IdentityMap

_VARIABLES = frozenset([Var, relax.DataflowVar])

OPERATION, PROJECTION, TRANSPARENT = "operation", "projection", "transparent"


class RelaxFunction:
    """The bindings of a Relax function, numbered in order.

    Consecutive dataflow blocks count as one, since all they hold is pure.

    Attributes
    ----------
    module : IRModule
        The module in normal form; the one given is never changed.
    function : relax.Function
        The function.
    variable : GlobalVar
        Its name in the module.
    bindings : list of relax.Binding
    kinds : list of str
        Per binding OPERATION, PROJECTION or TRANSPARENT.
    blocks : list of int
        Per binding the block that holds it.
    is_dataflow : list of bool
        Per block whether it is a dataflow block.
    domains : list of int
        Per binding the stretch of bindings that it may be moved in: a block, cut further where
        a `match_cast` defines symbolic sizes.
    index_of : mapping of Var to int
        The binding that defines a variable.
    parameters : mapping of Var to int
        Position of each parameter.

    Raises
    ------
    PartitionError
        The module has no Relax function of that name.
    """

    def __init__(self, mod: IRModule, name: str = "main") -> None:
        functions = {variable.name_hint: function for variable, function in mod.functions_items()}
        if not isinstance(functions.get(name), relax.Function):
            names = ", ".join(sorted(functions)) or "none"
            raise PartitionError(f"the module has no Relax function {name!r}; functions: {names}")
        self.module = relax.transform.Normalize()(mod)
        self.variable = self.module.get_global_var(name)
        self.function = self.module[self.variable]
        self.bindings: list[Any] = []
        self.kinds: list[str] = []
        self.blocks: list[int] = []
        self.is_dataflow: list[bool] = []
        self.domains: list[int] = []
        self.index_of: IdentityMap[int] = IdentityMap()
        self.parameters: IdentityMap[int] = IdentityMap()
        for position, parameter in enumerate(self.function.params):
            self.parameters[parameter] = position
        self._read()

    def _read(self) -> None:
        domain = 0
        for block in self.function.body.blocks:
            dataflow = isinstance(block, relax.DataflowBlock)
            if not (self.is_dataflow and dataflow and self.is_dataflow[-1]):
                self.is_dataflow.append(dataflow)
                domain += 1
            for binding in block.bindings:
                is_cast = isinstance(binding, relax.MatchCast)
                domain += is_cast
                self.index_of[binding.var] = len(self.bindings)
                self.bindings.append(binding)
                self.kinds.append(self._kind(binding))
                self.blocks.append(len(self.is_dataflow) - 1)
                self.domains.append(domain)
                domain += is_cast

    def _kind(self, binding: Any) -> str:
        value = binding.value
        if isinstance(binding, relax.MatchCast):
            return OPERATION
        if isinstance(value, TupleGetItem):
            base = self.resolve(value.tuple_value)
            return TRANSPARENT if isinstance(base, Tuple) else PROJECTION
        if isinstance(value, (Call, relax.If, relax.Function)):
            return OPERATION
        return TRANSPARENT

    def resolve(self, expr: Any) -> Any:
        """The expression behind transparent bindings: a variable, constant, tuple or shape."""
        while True:
            if type(expr) in _VARIABLES:
                index = self.index_of.get(expr)
                if index is None or self.kinds[index] != TRANSPARENT:
                    return expr
                expr = self.bindings[index].value
            elif isinstance(expr, TupleGetItem):
                base = self.resolve(expr.tuple_value)
                if not isinstance(base, Tuple):
                    return expr
                expr = base.fields[expr.index]
            else:
                return expr

    def reads(self, index: int) -> list[Any]:
        """Variables that a binding reads, repetitions included."""
        return variables(self.bindings[index].value)

    def sources(self, expr: Any) -> Iterator[Any]:
        """Variables that an expression reads, transparent bindings seen through."""
        for variable in variables(expr):
            found = self.resolve(variable)
            if found is variable or found.same_as(variable):
                yield variable
            else:
                yield from self.sources(found)

    def is_claimable(self, index: int) -> bool:
        """Whether a binding may move into a subgraph: an operator call in a dataflow block."""
        binding = self.bindings[index]
        return (
            self.kinds[index] == OPERATION
            and self.is_dataflow[self.blocks[index]]
            and not isinstance(binding, relax.MatchCast)
            and isinstance(binding.value, Call)
            and isinstance(binding.value.op, Op)
        )

    def entry(self, variable: Any) -> tuple[Any, tuple[int, ...]]:
        """The operation or parameter that a variable is part of, and the output indices to it."""
        path: tuple[int, ...] = ()
        index = self.index_of.get(variable)
        while index is not None and self.kinds[index] == PROJECTION:
            value = self.bindings[index].value
            path = (int(value.index), *path)
            variable = self.resolve(value.tuple_value)
            index = self.index_of.get(variable)
        return variable, path

    def owner(self, index: int) -> int | None:
        """The operation a projection belongs to; None for one of a parameter."""
        return self.index_of.get(self.entry(self.bindings[index].var)[0])


def variables(expr: Any) -> list[Any]:
    """Relax variables that an expression reads, in order, repetitions included."""
    if type(expr) in _VARIABLES:  # first, and much faster than isinstance
        return [expr]
    if isinstance(expr, Call):
        # A slice makes a list in one step; iterating over TVM's arrays checks every index.
        operands = expr.args[:]
        if isinstance(expr.op, Var):
            operands.insert(0, expr.op)
    elif isinstance(expr, Tuple):
        operands = expr.fields[:]
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
