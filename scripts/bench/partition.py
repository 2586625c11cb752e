#!/usr/bin/env python3
"""Time the partitioner on random graphs of which half the operators are claimed.

    python -m scripts.bench.partition                    # 1k to 1M nodes, all three
    python -m scripts.bench.partition --nodes 100000 --what symbol

For each size it prints the seconds that forming the regions alone takes, partitioning a Symbol, and
partitioning a Relax module; callbacks and JSON are part of the last two. Graphs are made before the
clock starts. Seconds are of the process's CPU time, with the wall-clock time in brackets.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from collections.abc import Callable
from typing import Any

from compiler.partition import Strategy, register

VARIABLES = 10
Work = tuple[Callable[[], Any], Callable[[Any], int]]
"""What is timed, and how many subgraphs its result has."""
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)


def random_graph(size: int, reach: int) -> tuple[list[list[int]], list[bool]]:
    """One or two predecessors of each node, among the `reach` before it; half are claimed."""
    chance = random.Random(size)
    predecessors: list[list[int]] = [[] for _ in range(VARIABLES)]
    for node in range(VARIABLES, size):
        first = max(0, node - reach)
        predecessors.append([chance.randrange(first, node) for _ in range(chance.randint(1, 2))])
    claimed = [node >= VARIABLES and chance.random() < 0.5 for node in range(size)]
    return predecessors, claimed


def last_nodes(predecessors: list[list[int]]) -> list[int]:
    """Nodes that nothing reads: the outputs."""
    read = {source for sources in predecessors for source in sources}
    return [node for node in range(len(predecessors)) if node not in read]


def regions(predecessors: list[list[int]], claimed: list[bool]) -> Work:
    """Forming the regions alone."""
    from compiler.partition.regions import ANY, UNMARKED, find_regions

    marks = [ANY if wanted else UNMARKED for wanted in claimed]
    return lambda: find_regions(predecessors, marks), len


def symbol(predecessors: list[list[int]], claimed: list[bool]) -> Work:
    """`Symbol.optimize_for`; claimed nodes are called c<i>, others n<i>."""
    from compiler.mxnet.symbol import Entry, Graph, Node, Symbol

    nodes = [
        Node("null", f"v{node}")
        if node < VARIABLES
        else Node(
            "sin" if len(sources) == 1 else "elemwise_add",
            f"{'c' if claimed[node] else 'n'}{node}",
            [Entry(source) for source in sources],
        )
        for node, sources in enumerate(predecessors)
    ]
    made = Symbol(Graph(nodes, [Entry(node) for node in last_nodes(predecessors)]))
    return (
        lambda: made.optimize_for("half"),
        lambda found: sum(bool(node.subgraphs) for node in found.graph.nodes),
    )


def module(predecessors: list[list[int]], claimed: list[bool]) -> Work:
    """`partition` of a module of Relay's operators."""
    import tvm
    from tvm import relax

    from compiler.partition import partition_with_report
    from compiler.relay import from_relax

    ty = relax.TensorType((2, 2), "float32")
    sin, add = tvm.ir.Op.get("relax.sin"), tvm.ir.Op.get("relax.add")
    variables: list[Any] = [relax.Var(f"v{i}", ty) for i in range(VARIABLES)]
    bindings = []
    for node in range(VARIABLES, len(predecessors)):
        read = [variables[source] for source in predecessors[node]]
        name = f"{'c' if claimed[node] else 'n'}{node}"
        variables.append(relax.DataflowVar(name, ty))
        call = relax.Call(sin if len(read) == 1 else add, read, ret_ty=ty)
        bindings.append(relax.VarBinding(variables[-1], call))
    outputs = [variables[node] for node in last_nodes(predecessors)]
    result = relax.Var("result", relax.TupleType([ty] * len(outputs)))
    bindings.append(relax.VarBinding(result, relax.Tuple(outputs)))
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], result)
    function = relax.Function(variables[:VARIABLES], body, result.ty, True)
    mod = from_relax(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    return (
        lambda: partition_with_report(mod, "half"),
        lambda found: sum(candidate.accepted for candidate in found.candidates),
    )


KINDS = {"regions": regions, "symbol": symbol, "module": module}


def claim(graph_json: str, ids: list[int], options: dict[str, str]) -> None:
    """Claim the nodes called c<i>."""
    for index, node in enumerate(json.loads(graph_json)["nodes"]):
        if node["name"].startswith("c"):
            ids[index] = -1


def main() -> None:
    """Read the command line, measure, print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--what", choices=list(KINDS), nargs="+", default=list(KINDS))
    parser.add_argument("--reach", type=int, default=50, help="how far back inputs lie, in nodes")
    given = parser.parse_args()
    register("half", Strategy("half", claim))
    print(f"{'nodes':>9}  {'subgraphs':>9}  " + "  ".join(f"{kind:>18}" for kind in given.what))
    for size in given.nodes:
        predecessors, claimed = random_graph(size, given.reach)
        cells, found = [], 0
        for kind in given.what:
            work, count = KINDS[kind](predecessors, claimed)
            gc.collect()
            wall, processor = time.perf_counter(), time.process_time()
            result = work()
            processor, wall = time.process_time() - processor, time.perf_counter() - wall
            cells.append(f"{processor:8.2f} ({wall:7.2f})")
            found = count(result)
            del work, result
        print(f"{size:9}  {found:9}  " + "  ".join(f"{cell:>18}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
