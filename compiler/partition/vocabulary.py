"""Which names of operators a strategy knows: Relay's, or Relax's.

A strategy is asked about the module in Relay's operators. If it claims none that has its name in
Relay alone, it is asked about the same module in Relax's operators; where it claims some that only
Relax calls so, it is one that was written for Relax's names, and gets the graphs and subgraphs
with those. What it claims is raised afterwards, so that a Relax name stands for all the Relay
operators that `relay.from_relax` makes of it: "matmul" for `nn.dense` and `nn.batch_matmul`. What
only brings a parameter into the form that Relax's operator takes, as `permute_dims` the weight of
a `nn.dense`, goes along with that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from tvm.ir import Op

from compiler.backends.graph import VARIABLE, Graph

from .region_growing import UNMARKED

_ARRANGING = frozenset(("expand_dims", "permute_dims", "reshape"))


def knows_relay(names: Iterable[str]) -> bool:
    """Whether one of the operators has its name in Relay and not in Relax."""
    from ..relay.op.registry import is_available

    return any(is_available(name) and not _is_relax(name) for name in names)


def knows_relax(names: Iterable[str]) -> bool:
    """Whether one of the operators has its name in Relax and another one in Relay."""
    from ..relay.op.raising import raisable
    from ..relay.op.registry import is_available

    in_relax = set(raisable())
    return any(name in in_relax and not is_available(name) for name in names)


def with_arranged_parameters(graph: Graph, marks: Sequence[int]) -> list[int]:
    """The marks, and those of operators that arrange a parameter for marked operators alone."""
    readers: dict[int, set[int]] = {index: {UNMARKED} for index, _ in graph.heads}
    for index, node in enumerate(graph.nodes):
        for source, _ in node.inputs:
            readers.setdefault(source, set()).add(marks[index])
    found = list(marks)
    for index, node in enumerate(graph.nodes):
        of_parameter = all(graph.nodes[source].op == VARIABLE for source, _ in node.inputs)
        wanted = readers.get(index, set())
        if marks[index] == UNMARKED and node.op in _ARRANGING and of_parameter:
            found[index] = wanted.pop() if len(wanted) == 1 else UNMARKED
    return found


@cache
def _is_relax(name: str) -> bool:
    return f"relax.{name}" in Op.list_op_names()
