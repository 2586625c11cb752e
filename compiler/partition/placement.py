"""Placement of operators on the engines that run them fastest, by measurement.

1. *Segments.* The operators, in the order of the graph, are cut into segments of about equal
   predicted time where the fewest tensors and bytes cross: in a chain of dominators, one tensor.
   Stretches of a topological order never feed each other in a circle.
2. *Costs.* Each segment is timed with each back end alone, and with the build's own kernels.
3. *Paths.* Dynamic programming over the segments finds the assignments of the least predicted time:
   costs, plus the bytes of the boundaries where the engine changes, less the calls that neighbors
   in one engine save. It is exact for these segments.
4. *Whole models.* The build alone, each engine alone and the best mixed assignments are timed end
   to end. A mixed one wins only if it beats the best engine alone by more than noise.

Candidates are built and timed in worker processes, in turn. An engine that raises, crashes, hangs,
takes too much memory or returns other results than the build loses; its record has the reason.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import IRModule

from compiler.backends import get_partitioner
from compiler.backends.graph import VARIABLE, Graph
from compiler.backends.relax_graph import RelaxGraph
from compiler.errors import BatonError, PartitionError
from compiler.ir.dataflow_graph import RelaxFunction
from compiler.ir.outline import INPUT_NAMES, Group, outline
from compiler.lowering.metadata import inputs_of
from compiler.measure.library_timing import MODULES, TimedModule, relay_operators, time_library
from compiler.measure.workers import WorkerPool
from compiler.pass_context import default_opt_level
from compiler.records.placement_log import PlacementLog, PlacementRecord, Stretches
from compiler.relay.calling_convention import as_main
from compiler.runtime.session import default_threads
from compiler.support.tempdir import TemporaryFolder
from compiler.target import parse, to_cli
from compiler.version import package_version

from .candidates import Partitioning
from .costs import Rates, costs_of, entry_bytes, measured_rates
from .explanation import BUILD

logger = logging.getLogger("baton.partition")

Partition = Callable[
    [IRModule, Mapping[str, Any], "Collection[str]", "Mapping[int, str] | None"], Partitioning
]
"""Partitions a module with its weights for some back ends; only the bindings that a mapping by
hash of the variable gives to each back end, if there is one."""

_CUT_RATES = Rates(100.0, 10.0)  # a log replays on other machines only if all cut at one place
_MOST_MIXED = 2  # mixed assignments that are timed end to end
_CLOSE = 1.05  # times the least predicted time: mixed assignments above it are not timed
_NOISE = 0.97  # of the best engine alone: a mixed assignment that is not below it loses
_SLOW = 3.0  # times the fastest: measured once only
_PACKAGES = {"onednn": "onednn-cpu-gomp"}  # of back ends that are not named as their packages
_LARGEST_ERROR = 0.05  # of an engine's results, relative to the largest magnitude of the build's


@dataclass(frozen=True)
class Fastest:
    """Settings of `partition(..., placement=Fastest(...))`; "fastest" means the defaults."""

    target: str = "llvm"  # CPU to compile for, as `relay.build` takes it; it is this machine's
    threads: int | None = None  # of every engine; `TVM_NUM_THREADS`, else this process's CPUs
    segments: int = 6  # at most, which may go to different engines
    seconds: float = 0.2  # length of one measurement of one candidate
    rounds: int = 5  # measurements of each whole placement, taken in turn
    timeout: float = 600.0  # seconds to build and measure one candidate
    memory: int = 16 << 30  # bytes that one candidate may allocate


def fastest(
    mod: IRModule,
    params: Mapping[str, Any],
    names: Sequence[str],
    options: Mapping[str, str],
    how: Fastest,
    partition: Partition,
) -> Partitioning:
    """Partition a Relay module as measured, or replayed from a `PlacementLog`, to be fastest.

    Raises PartitionError: the target is not a CPU, an input has dynamic extents, no engine runs the
    model, or the placement of the log needs a package that is not installed.
    """
    target = parse(how.target)
    if str(target.kind.name) != "llvm":
        raise PartitionError(f"placement is measured on the CPU; the target is {how.target!r}")
    for info in inputs_of(mod):
        if not info.is_static and info.name not in params:
            raise PartitionError(f"{info}: placement is measured at known shapes; give --shape")
    with default_opt_level():
        context = tvm.transform.PassContext.current()
    threads = str(how.threads or default_threads())
    settings = {"TVM_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
    conditions = [to_cli(target), threads, sorted(options.items()), tvm.ir.save_json(context)]
    known = {
        (each.workload, each.placement): each
        for log in reversed(PlacementLog.active())
        for each in log.records
        if all(package_version(name) in (None, text) for name, text in each.versions.items())
    }
    with TemporaryFolder("placement") as folder, WorkerPool(1, settings) as pool:
        search = _Search(names, how, partition, pool, folder, context, str(conditions), known)
        whole, gap = search.placements(mod, params)
        chosen = _chosen(whole)
        for name, version in chosen.versions.items():
            if not package_version(name):
                raise PartitionError(
                    f"the placement log runs operators in {name} {version}, which is not "
                    f"installed: pip install {name}, or leave it out of the back ends"
                )
        done = search.partitioned(mod, params, chosen.placement)
    others = sorted((each for each in whole if each != chosen), key=lambda each: each.median)
    return replace(done, measured=(chosen, *others), gap=gap)


@dataclass(frozen=True)
class _Search:
    """Candidates among some back ends and the build, timed in the workers of a pool.

    `folder`: of their libraries. `conditions`: all settings that decide times. `known`: records by
    workload and placement.
    """

    names: Sequence[str]
    how: Fastest
    partition: Partition
    pool: WorkerPool
    folder: str
    context: tvm.transform.PassContext
    conditions: str
    known: dict[tuple[str, Stretches], PlacementRecord]

    def placements(
        self, mod: IRModule, params: Mapping[str, Any]
    ) -> tuple[list[PlacementRecord], float]:
        """Records of a model, logged or new, and the gap of `Partitioning`.

        With control flow, or sizes found at run time, only engines alone compete.
        """
        main = RelaxFunction(mod)
        source = RelaxGraph(main, {})
        operators, workload = _operators(source.graph), self._workload(mod)
        alone, asked = self._alone(len(operators) or 1), {BUILD, *self.names}
        logged = [
            record
            for (of, placement), record in self.known.items()
            if of == workload and {name for _, name in placement} <= asked
        ]
        if {*alone} <= {each.placement for each in logged}:
            return logged, math.nan
        bindings = [source.binding_of[index] for index in operators]
        inside = [each for each in bindings if each is not None and main.claimable[each]]
        mixed, gap = list[Stretches](), math.nan
        if len(inside) == len(bindings) and len({main.domains[each] for each in inside}) == 1:
            cuts = cut_points(source.graph, self.how.segments)
            mixed, gap = self._mixed(main, params, inside, cuts)
        return self._measured(mod, params, [*alone, *mixed], self.how.rounds), gap

    def partitioned(
        self, mod: IRModule, params: Mapping[str, Any], placement: Stretches
    ) -> Partitioning:
        """The module, partitioned for a placement."""
        owners = None
        if len(placement) > 1:
            main = RelaxFunction(mod)
            source = RelaxGraph(main, {})
            bindings = [source.binding_of[index] for index in _operators(source.graph)]
            engines = [name for count, name in placement for _ in range(count)]
            pairs = zip(bindings, engines)
            owners = {hash(main.variables[b]): name for b, name in pairs if b is not None}
        return self.partition(mod, params, _engines(placement), owners)

    def _workload(self, mod: IRModule) -> str:
        structure = tvm_ffi.structural_hash(mod, map_free_vars=True, skip_tensor_content=True)
        text = f"{structure:x} {self.conditions}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _alone(self, count: int) -> list[Stretches]:
        """All operators in the build, or in one back end."""
        return [((count, name),) for name in (BUILD, *self.names)]

    def _mixed(
        self,
        main: RelaxFunction,
        params: Mapping[str, Any],
        bindings: Sequence[int],
        cuts: Sequence[tuple[int, int]],
    ) -> tuple[list[Stretches], float]:
        """The best assignments of segments to several engines, and the gap of `Partitioning`."""
        if not cuts:
            return [], math.nan
        bounds = [0, *(position for position, _ in cuts), len(bindings)]
        pieces = [[*bindings[start:stop]] for start, stop in pairwise(bounds)]
        groups = [
            Group(piece, f"baton_segment_{number}", {}, main.parameters)
            for number, piece in enumerate(pieces)
        ]
        outlined = outline(main, groups)
        costs: list[dict[str, float]] = []
        for piece, group in zip(pieces, groups):
            function = outlined[group.name]
            names = json.loads(str(function.attrs[INPUT_NAMES]))
            pairs = zip(function.params, names, strict=True)
            values = {str(v.name): params[name] for v, name in pairs if name in params}
            segment, alone = as_main(function.without_attr(INPUT_NAMES)), self._alone(len(piece))
            found = self._measured(segment, values, alone, min(self.how.rounds, 2))
            costs.append({each.name: 1e6 * each.median for each in found if each.seconds})
        if not all(costs):
            return [], math.nan
        rates = measured_rates()
        call = rates.call_microseconds
        paths = best_paths(costs, [rates.microseconds(0, 2 * nbytes) for _, nbytes in cuts], call)
        close = [path for cost, path in paths if cost < _CLOSE * paths[0][0]]
        mixed = [tuple(zip(map(len, pieces), path)) for path in close if len({*path}) > 1]
        least = sum(min(each.values()) for each in costs) - call * len(cuts)
        return mixed[:_MOST_MIXED], 1 - max(least, 0.0) / paths[0][0]

    def _measured(
        self, mod: IRModule, params: Mapping[str, Any], placements: Sequence[Stretches], rounds: int
    ) -> list[PlacementRecord]:
        """Time placements of a module in turn, unless all are known."""
        workload = self._workload(mod)
        keys = [(workload, placement) for placement in placements]
        if all(key in self.known for key in keys):
            return [self.known[key] for key in keys]
        timed: dict[Stretches, TimedModule] = {}
        errors: dict[Stretches, str] = {}
        for placement in placements:
            done = self.partitioned(mod, params, placement)
            if _engines(placement) and not any(each.accepted for each in done.candidates):
                errors[placement] = "takes no operator"
            else:
                timed[placement] = self._timed(done.module, params, _engines(placement))
        times: dict[Stretches, list[float]] = {placement: [] for placement in timed}
        expected: Sequence[np.ndarray] = ()
        limits = self.how.timeout, self.how.memory, MODULES
        for turn in range(rounds):
            least = min((min(each) for each in times.values() if each), default=math.inf)
            for placement, module in timed.items():
                if placement in errors or (turn and times[placement][0] > _SLOW * least):
                    continue
                try:
                    arguments = module, self.how.seconds
                    kind, value = self.pool.submit(time_library, arguments, *limits).result()
                except BatonError as error:  # its callbacks can't be sent
                    kind, value = "raised", str(error)
                if kind != "value":
                    errors[placement] = f"{kind}: {value or f'after {self.how.timeout:g} s'}"
                    logger.warning("placement: %s: %s", placement, errors[placement])
                    continue
                times[placement].append(statistics.median(value[0]))
                if not turn and not _engines(placement):
                    expected = value[1]
                elif not turn and (difference := _difference(value[1], expected)):
                    errors[placement] = difference
        for key, placement in zip(keys, placements):
            packages = [_PACKAGES.get(name, name) for name in _engines(placement)]
            versions = {name: text for name in packages if (text := package_version(name))}
            failure = errors.get(placement, "")
            seconds = () if failure else tuple(times[placement])
            self.known[key] = PlacementRecord(workload, placement, versions, seconds, failure)
        found = [self.known[key] for key in keys]
        if any(each.seconds for each in found):
            PlacementLog.active()[0].add(found)
        return found

    def _timed(self, mod: IRModule, params: Mapping[str, Any], names: set[str]) -> TimedModule:
        """A module as workers take it, built as the thread's PassContext has it."""
        own = "compiler.backends."
        others = [
            each
            for each in map(get_partitioner, sorted(names))
            if not str(getattr(each.compile, "__module__", "")).startswith(own)
        ]
        arrays = {
            name: value.numpy() if hasattr(value, "numpy") else value
            for name, value in params.items()
        }
        text, operators = tvm.ir.save_json(mod), relay_operators(mod)
        target, path = to_cli(parse(self.how.target)), f"{self.folder}/{self._workload(mod)}.so"
        return TimedModule(text, operators, arrays, target, self.context, tuple(others), path)


def _operators(graph: Graph) -> list[int]:
    return [index for index, node in enumerate(graph.nodes) if node.op != VARIABLE]


def _engines(placement: Stretches) -> set[str]:
    """The back ends of a placement."""
    return {name for _, name in placement} - {BUILD}


def _difference(outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str:
    """How an engine's results differ from the build's; "" where they agree, or it has none.

    Floats may differ by 5 % of the largest magnitude, int8 and uint8 by 1, the others not at all.
    """
    for number, (found, wanted) in enumerate(zip(outputs, expected)):
        if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            return (
                f"output {number} is {found.dtype}{found.shape}, not {wanted.dtype}{wanted.shape}"
            )
        exact = wanted.astype("longdouble")
        finite = np.isfinite(exact)
        largest = float(np.abs(exact[finite]).max(initial=0))
        error = float(np.abs(found[finite].astype("longdouble") - exact[finite]).max(initial=0))
        bound = float(wanted.dtype.itemsize == 1 and wanted.dtype.kind != "b")
        if wanted.dtype.kind not in "biu":
            bound = _LARGEST_ERROR * max(largest, float(np.finfo("float32").tiny))
        if not error <= bound:
            return f"output {number} differs from the build's by {error:.1e}; largest {largest:.1e}"
    return ""


def _chosen(records: Sequence[PlacementRecord]) -> PlacementRecord:
    """The fastest of whole placements; a mixed one only if it is faster beyond noise."""
    ranked = sorted(records, key=lambda each: each.median)
    if ranked[0].median == math.inf:
        raise PartitionError(f"no engine runs the model: {'; '.join(map(str, ranked))}")
    alone = next(each for each in ranked if len(each.placement) == 1)
    return ranked[0] if ranked[0].median < _NOISE * alone.median else alone


def cut_points(graph: Graph, count: int) -> list[tuple[int, int]]:
    """Where to cut a graph into at most `count` segments, and the bytes that cross each cut.

    A position is that of the first operator after the cut. Near each equal share of the
    predicted time it is the one that the fewest tensors cross, then the fewest bytes; of equal ones
    the one before the operator of the most FLOPs, so that fusion stays whole.
    """
    operators = _operators(graph)
    position = {node: place for place, node in enumerate(operators)}
    last: dict[tuple[int, int], int] = {}
    for place, node in enumerate(operators):
        last.update((entry, place) for entry in graph.nodes[node].inputs if entry[0] in position)
    crossing = np.zeros((len(operators), 2), "int64")  # tensors and bytes before each operator
    for (producer, output), reader in last.items():
        between = slice(position[producer] + 1, reader + 1)
        crossing[between] += (1, entry_bytes(graph, producer, output))
    whole = costs_of(graph)
    costs = [whole[node] for node in operators]
    ends = np.cumsum([0.0, *(_CUT_RATES.microseconds(each.flops, each.nbytes) for each in costs)])
    share = ends[-1] / count
    found = [(0, 0)]
    for wanted in share * np.arange(1, count):
        places = range(found[-1][0] + 1, len(operators))
        near = [place for place in places if abs(ends[place] - wanted) <= share / 2]
        keys = [(*crossing[p], -costs[p].flops, abs(ends[p] - wanted), p) for p in near]
        if keys:
            place = int(min(keys)[-1])
            found.append((place, int(crossing[place, 1])))
    return found[1:]


def best_paths(
    costs: Sequence[Mapping[str, float]], switches: Sequence[float], call: float
) -> list[tuple[float, tuple[str, ...]]]:
    """Cheapest assignment of segments to engines for each engine of the last segment, in order.

    `costs`: of each segment by engine. `switches`: of a change of the engine after each segment.
    `call`: what two neighbors in one back end save. All in one unit.
    """

    def step(before: str, engine: str, switch: float) -> float:
        return switch if before != engine else 0.0 if engine == BUILD else -call

    paths: list[tuple[float, tuple[str, ...]]]
    paths = [(cost, (engine,)) for engine, cost in costs[0].items()]
    for own, switch in zip(costs[1:], switches, strict=True):
        paths = [
            min((t + cost + step(path[-1], name, switch), (*path, name)) for t, path in paths)
            for name, cost in own.items()
        ]
    return sorted(paths)
