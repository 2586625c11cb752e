"""Deferred compute: record operators on arrays and turn their results into a symbol.

    x = np.ones((2, 3))
    set_variable(x, symbol.var("x"))
    with deferred_compute():
        y = np.exp(x) + 1
    get_symbol(y).list_arguments()  # ["x"]

Values are computed when they are asked for, also inside of the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from compiler.errors import DeferredComputeError
from compiler.mxnet.symbol.symbol import Symbol
from compiler.mxnet_format.graph import VARIABLE, Entry, Graph, Node
from compiler.support.depth_first import depth_first
from compiler.support.scoped_context import scoped_value

from .infer import NUMPY_SEMANTICS
from .ndarray import ndarray
from .value import _TRACE, Record, Trace, Value, Variable, call_site, current_trace

MXNET_VERSION = ("int", 20000)
"""The version whose operators are recorded."""


def is_deferred_compute() -> bool:
    """Whether operators of this thread are being recorded."""
    return current_trace() is not None


def set_deferred_compute(state: bool) -> bool:
    """PassFlag the recording of this thread on or off; returns what it was before."""
    before = is_deferred_compute()
    if state != before:
        _TRACE.set(Trace() if state else None)
    return before


@contextmanager
def deferred_compute(state: bool = True, allow_constants: bool = False) -> Iterator[Trace | None]:
    """Record operators in the `with` block; contexts nest and are restored on exceptions.

    Parameters
    ----------
    state : bool
        False suspends the recording.
    allow_constants : bool
        Arrays without a variable, made before, may be read; they become variables `const0`, ...,
        whose values are in `constants` of what the context gives.
    """
    with tracing(Trace(allow_constants=allow_constants) if state else None) as trace:
        yield trace


context = deferred_compute


def tracing(trace: Trace | None) -> AbstractContextManager[Trace | None]:
    """Make `trace` the recording of this thread, None for none."""
    return scoped_value(_TRACE, trace)


def set_variable(arrays: ndarray | Sequence[ndarray], variables: Any) -> None:
    """Bind arrays to variables of a symbol, pairwise; all are checked before any is bound.

    Raises
    ------
    DeferredComputeError
        A symbol is not a variable, or an array has another variable or is a result.
    """
    given = [arrays] if isinstance(arrays, ndarray) else list(arrays)
    wanted = [variables] if isinstance(variables, Symbol) else list(variables)
    if len(given) != len(wanted):
        raise DeferredComputeError(
            f"{call_site()}: {len(given)} arrays can't be bound to {len(wanted)} variables"
        )
    bound = [_variable(symbol, position) for position, symbol in enumerate(wanted)]
    for position, (array, variable) in enumerate(zip(given, bound)):
        value = array._value
        if value.variable is not None and value.variable.symbol is not variable.symbol:
            raise DeferredComputeError(
                f"{call_site()}: array {position} is bound to the variable "
                f"{value.variable.name!r} already; array.detach() gives an array without it"
            )
        if value.variable is None and value.has_history:
            raise DeferredComputeError(
                f"{call_site()}: array {position} is the result of a recorded operator; "
                "array.detach() of a value computed outside gives one that can be bound"
            )
    for array, variable in zip(given, bound):
        if array._value.variable is None:
            array._value.variable = variable


def _variable(symbol: Any, position: int) -> Variable:
    if len(symbol) != 1 or not symbol.graph.nodes[symbol.graph.heads[0].node].is_variable:
        kind = f"has {len(symbol)} outputs" if len(symbol) != 1 else "is of an operator"
        raise DeferredComputeError(
            f"{call_site()}: set_variable expects variables; symbol {position} {kind}"
        )
    node = symbol.graph.nodes[symbol.graph.heads[0].node]
    return Variable(node.name, dict(node.attrs), symbol)


def get_symbol(output_arrays: ndarray | Sequence[ndarray], *, sym_cls: type = Symbol) -> Any:
    """The symbol whose outputs are those of the arrays, in order.

    Raises
    ------
    DeferredComputeError
        An array has no variable and is not a result of a recorded operator.
    """
    arrays = [output_arrays] if isinstance(output_arrays, ndarray) else list(output_arrays)
    for position, array in enumerate(arrays):
        if not array._value.has_history:
            raise DeferredComputeError(
                f"{call_site()}: output {position} was not recorded by deferred compute and is "
                "bound to no variable"
            )
    graph, _ = build_graph([array._value for array in arrays])
    graph.attrs = {"is_np_shape": NUMPY_SEMANTICS, "mxnet_version": MXNET_VERSION}
    return sym_cls(graph)


def build_graph(
    heads: Sequence[Value],
    variables: Sequence[Value] = (),
    is_outside: Callable[[Value], bool] = lambda value: False,
) -> tuple[Graph, list[Value]]:
    """The graph of recorded values, and its variables that are not in `variables`, in node order.

    `variables` come first, in this order. `is_outside`: whether a value is to be a variable, though
    it was recorded; control flow bodies read such.
    """
    nodes: list[Node] = []
    of_variable: dict[Any, int] = {}
    of_record: dict[Record, int] = {}
    found: list[Value] = []

    def declare(value: Value) -> bool:
        """Add the value's variable; whether it is new."""
        variable = value.variable
        key: Any = variable if variable is not None else (value.record, value.index)
        if key in of_variable:
            return False
        of_variable[key] = len(nodes)
        if variable is not None:
            nodes.append(Node(VARIABLE, variable.name, attrs=dict(variable.attrs)))
        else:
            name = f"{value.record.name}_out{value.index}" if value.record else ""
            nodes.append(Node(VARIABLE, name))
        return True

    def is_variable(value: Value) -> bool:
        return value.variable is not None or value.record is None or is_outside(value)

    def entry(value: Value) -> Entry:
        if is_variable(value):
            return Entry(of_variable[value.variable or (value.record, value.index)])
        return Entry(of_record[value.record], value.index)  # type: ignore[index]

    def records_of(values: Sequence[Value]) -> Iterator[Record]:
        """The records of values; variables among them are declared on the way."""
        for value in values:
            if value.record is not None and not is_variable(value):
                yield value.record
            elif declare(value):
                found.append(value)

    for value in variables:
        declare(value)
    for record in depth_first(records_of(heads), lambda record: records_of(record.inputs)):
        of_record[record] = len(nodes)
        nodes.append(_node(record, [entry(each) for each in record.inputs]))
    return Graph(nodes, [entry(value) for value in heads]), found


def _node(record: Record, inputs: list[Entry]) -> Node:
    bodies = list(record.subgraphs)
    return Node(record.op, record.name, inputs, dict(record.attrs), subgraphs=bodies)


def clear(arrays: ndarray | Sequence[ndarray]) -> None:
    """Make arrays plain: forget their recording and its variables; values stay computable."""
    given = [arrays] if isinstance(arrays, ndarray) else list(arrays)
    pending = [array._value for array in given]
    seen: set[Record] = set()
    while pending:
        value = pending.pop()
        value.variable = None
        record = value.record
        if record is not None and record not in seen:
            seen.add(record)
            record.traced = False
            pending += record.inputs
            pending += [each for _, each in record.alive()]
