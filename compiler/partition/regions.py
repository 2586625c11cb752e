"""From marked nodes to regions: which nodes of a graph go into one subgraph together.

The algorithm knows nothing of operators. Nodes are numbered so that every predecessor has a
smaller number; each node has a mark. Every marked node ends up in exactly one region, a region's
nodes are connected and carry at most one number, and the graph in which *all* regions are
contracted at once is acyclic.

1. *Components.* From each marked node in ascending order, unless it is in a component already, a
   component grows breadth-first over marked nodes of compatible marks.
2. *Conflicts.* A component that lies on no cycle of the contracted graph becomes a region as it is.
3. *Exclusion.* A conflicted component grows again: as long as a path leaves it and comes back, the
   last node that one comes back to is left out, and with it what hangs on nothing else. What is
   left out begins new components. This is what MXNet does; it takes time that is quadratic
   in a component's size, so large components skip it.
4. *Levels.* Components that are still on a cycle are cut by level. A node's level is the largest
   number of times that a path to it leaves a component. The pieces are the connected nodes of one
   component and level.
5. *Merging.* Adjacent pieces are merged again where that closes no cycle.

Why the result is acyclic. A cycle of the graph contracted after step 4 is also a closed walk in
the graph contracted before it, hence passes through no component without conflict. Along an
edge the level never falls, and it rises along every edge that leaves a component; so on a cycle
all levels are equal and no edge leaves a component, and an edge between nodes of one component and
level does not leave the piece. What remains is a cycle of unmarked nodes, of which the graph has
none. Step 5 merges only where an exact search finds no second path.

Why no two regions could be joined. Step 5 repeats until no adjacent, compatible pair can be
merged, as long as its budget of visited edges lasts; graphs of up to some thousand nodes never
exhaust it. A larger graph may keep a cut that was not needed, never a cycle. The budget grows with
the graph's size alone, which makes the whole near-linear and the result the same on every run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from .contraction import AcyclicContraction
from .region_growing import ANY, UNMARKED, find_root, grow, last_return, readers_of

__all__ = ["ANY", "UNMARKED", "find_regions"]

_LARGEST_EXCLUSION = 1_000  # nodes of a component that step 3 takes on
_EXCLUSION_BUDGET = 250_000  # edges that step 3 may visit in any graph: about half a second
_BUDGET = 1_500_000  # edges that step 5 may visit in any graph: about a second
_BUDGET_PER_NODE = 6  # and for each node on top of that
_LEAST_SEARCH = 64  # edges every candidate may visit, however many candidates there are


def find_regions(
    predecessors: Sequence[Sequence[int]],
    marks: Sequence[int],
    domains: Sequence[int] | None = None,
) -> list[list[int]]:
    """Group marked nodes into regions.

    * `predecessors`: nodes that feed node i, all smaller than i; repetitions allowed.
    * `marks`: per node `UNMARKED`, `ANY`, or any other number: nodes of different numbers are never
      in one region, `ANY` nodes join any. Equal numbers do not tie unconnected nodes together.
    * `domains`: nodes of different domains are never in one region.
    Returns regions ordered by smallest member; members ascending.
    """
    size = len(marks)
    marks = _numbered(marks)
    readers = readers_of(predecessors)
    component = _components(predecessors, readers, marks, domains)
    conflicted = _on_cycles(_contracted(predecessors, component), size)
    if any(conflicted):
        component = _exclude(predecessors, readers, marks, component, conflicted)
        conflicted = _on_cycles(_contracted(predecessors, component), size)
        if any(conflicted):
            component = _cut_by_level(predecessors, marks, component, conflicted)
        component = _merge_pieces(predecessors, marks, domains, component)
    members: dict[int, list[int]] = {}
    for node in range(size):
        if marks[node] != UNMARKED:
            members.setdefault(component[node], []).append(node)
    return list(members.values())


def _numbered(marks: Sequence[int]) -> Sequence[int]:
    """Marks in which every number is at least 0."""
    if not marks or min(marks) >= UNMARKED:
        return marks
    below = sorted({mark for mark in marks if mark < UNMARKED})
    new = {mark: max(*marks, ANY) + 1 + position for position, mark in enumerate(below)}
    return [new.get(mark, mark) for mark in marks]


def _agree(one: int, two: int) -> bool:
    return one == two or ANY in (one, two)


def _components(
    predecessors: Sequence[Sequence[int]],
    readers: Sequence[Sequence[int]],
    marks: Sequence[int],
    domains: Sequence[int] | None,
) -> list[int]:
    """Smallest member of each node's component; an unmarked node is its own."""
    component = [-1] * len(marks)
    for seed, mark in enumerate(marks):
        if component[seed] >= 0:
            continue
        component[seed] = seed
        if mark != UNMARKED:
            domain = domains[seed] if domains else 0

            def is_open(node: int, domain: int = domain) -> bool:
                return component[node] < 0 and (domains is None or domains[node] == domain)

            for member in grow(seed, predecessors, readers, marks, is_open):
                component[member] = seed
    return component


def _exclude(
    predecessors: Sequence[Sequence[int]],
    readers: Sequence[Sequence[int]],
    marks: Sequence[int],
    component: list[int],
    conflicted: list[bool],
) -> list[int]:
    """Smallest member of each node's component after step 3."""
    sizes = Counter(component)
    open_nodes = {
        node
        for node, own in enumerate(component)
        if conflicted[own] and marks[node] != UNMARKED and sizes[own] <= _LARGEST_EXCLUSION
    }

    def within(seed: int, excluded: set[int]) -> Callable[[int], bool]:
        own = component[seed]
        return lambda node: component[node] == own and node in open_nodes and node not in excluded

    result = list(component)
    budget = _EXCLUSION_BUDGET
    for seed in sorted(open_nodes):
        if seed not in open_nodes:
            continue
        excluded: set[int] = set()
        last = -1
        while last != seed:
            members = set(grow(seed, predecessors, readers, marks, within(seed, excluded)))
            last, cost = last_return(readers, members)
            budget -= cost + len(members)
            if last < 0:
                break
            excluded.add(last)
        else:
            members = {seed}
        open_nodes -= members
        for member in members:
            result[member] = seed
        if budget <= 0:
            break
    # What the budget left out keeps its old component, whose smallest member may have gone.
    first: dict[int, int] = {}
    for node in sorted(open_nodes):
        result[node] = first.setdefault(component[node], node)
    return result


def _contracted(predecessors: Sequence[Sequence[int]], group: Sequence[int]) -> list[list[int]]:
    """Predecessor lists between groups; nodes that represent no group have none."""
    edges: list[list[int]] = [[] for _ in group]
    for node, sources in enumerate(predecessors):
        own = group[node]
        for source in sources:
            if group[source] != own:
                edges[own].append(group[source])
    return edges


def _on_cycles(predecessors: list[list[int]], size: int) -> list[bool]:
    """Which nodes lie on a cycle: the strongly connected parts of more than one node.

    Tarjan's algorithm with explicit stacks; edges are followed backward, which has no influence
    on the parts.
    """
    unseen, done = -1, size
    lowest = [unseen] * size  # smallest visit number known to be reachable; `done` when left
    result = [False] * size
    open_nodes: list[int] = []
    visits = 0
    for root in range(size):
        if lowest[root] != unseen:
            continue
        lowest[root] = visits
        path = [(root, visits, iter(predecessors[root]))]
        open_nodes.append(root)
        visits += 1
        while path:
            node, visit, sources = path[-1]
            for source in sources:
                if lowest[source] == unseen:
                    lowest[source] = visits
                    path.append((source, visits, iter(predecessors[source])))
                    open_nodes.append(source)
                    visits += 1
                    break
                if lowest[source] < lowest[node]:
                    lowest[node] = lowest[source]
            else:
                path.pop()
                if path and lowest[node] < lowest[path[-1][0]]:
                    lowest[path[-1][0]] = lowest[node]
                if lowest[node] == visit:
                    alone = open_nodes[-1] == node
                    while True:
                        member = open_nodes.pop()
                        lowest[member] = done
                        result[member] = not alone
                        if member == node:
                            break
    return result


def _cut_by_level(
    predecessors: Sequence[Sequence[int]],
    marks: Sequence[int],
    component: list[int],
    conflicted: list[bool],
) -> list[int]:
    """Smallest member of each node's piece after step 4."""
    level = [0] * len(marks)
    parent = list(range(len(marks)))
    for node, sources in enumerate(predecessors):
        own = component[node]
        level[node] = max(
            (
                level[source] + (marks[source] != UNMARKED and component[source] != own)
                for source in sources
            ),
            default=0,
        )
        for source in sources:
            if component[source] == own and (level[source] == level[node] or not conflicted[own]):
                one, two = find_root(parent, source), find_root(parent, node)
                parent[max(one, two)] = min(one, two)
    return [find_root(parent, node) for node in range(len(marks))]


def _merge_pieces(
    predecessors: Sequence[Sequence[int]],
    marks: Sequence[int],
    domains: Sequence[int] | None,
    piece: list[int],
) -> list[int]:
    """Smallest member of each node's region after step 5."""
    graph = AcyclicContraction(_contracted(predecessors, piece))
    number = [UNMARKED] * len(marks)  # by piece; ANY where no member has a number
    for node, mark in enumerate(marks):
        number[piece[node]] = max(number[piece[node]], mark)

    def joinable(source: int, target: int) -> bool:
        return _agree(number[graph.find(source)], number[graph.find(target)])

    # Targets in node order and their latest source first: a piece then joins what lies right
    # before it, and a detour through marked nodes is merged before the edge that it shadows.
    candidates = list(
        dict.fromkeys(
            (piece[source], piece[node])
            for node, sources in enumerate(predecessors)
            if marks[node] != UNMARKED
            for source in sorted(sources, reverse=True)
            if marks[source] != UNMARKED
            and piece[source] != piece[node]
            and (domains is None or domains[source] == domains[node])
        )
    )
    budget = _BUDGET + _BUDGET_PER_NODE * len(marks)
    merged_any = True
    while merged_any and candidates and budget > 0:
        merged_any = False
        left: list[tuple[int, int]] = []
        for index, (source, target) in enumerate(candidates):
            if budget <= 0 or not joinable(source, target):
                continue
            one, two = graph.find(source), graph.find(target)
            limit = max(_LEAST_SEARCH, budget // (len(candidates) - index))
            merged, cost = graph.merge(one, two, limit)
            budget -= cost
            if not merged:
                left.append((source, target))
            elif one != two:
                merged_any = True
                number[graph.find(one)] = max(number[one], number[two])
        candidates = left
    smallest: dict[int, int] = {}
    for node in range(len(marks)):
        smallest.setdefault(graph.find(piece[node]), node)
    return [smallest[graph.find(piece[node])] for node in range(len(marks))]
