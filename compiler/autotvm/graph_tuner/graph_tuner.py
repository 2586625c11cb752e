"""Graph tuners: which record each convolution of a network takes."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm

from ... import target as targets
from ...errors import RecordError
from ...records.autotvm.record import MeasureInput, encode, load_from_file
from ...records.autotvm.workload import digest
from ...records.log_file import append_lines
from ...relay.build_module import as_module
from ..best_records import mean_of
from ..measure import measure_option
from .network import Network, Node, network_of
from .solver import eliminate, reduce, total_cost
from .transforms import PLAIN, Transform, TransformCosts

Record = tuple[MeasureInput, Any]
# Conversions that are measured where the others are inferred.
MEASURED_TO_INFER = 6


class BaseGraphTuner:
    """What both tuners share: the candidates of each node, and the costs of its neighbors.

    Parameters
    ----------
    graph : IRModule or relax.Function
    input_shapes : dict of str to tuple of int
        Of the inputs; must be those of the graph.
    records : path, or iterable of (MeasureInput, MeasureResult)
        Of the kernels.
    target_ops : list of operators, or of their names
        Convolutions alone have layouts to choose.
    target : str, dict or Target
    max_sch_num : int
        Records of one workload that are considered, the fastest for each pair of layouts.
    dtype : str
    verbose : bool
        Log progress as information, else as details.
    log_file, log_level, name
        Taken from old scripts; messages go to the logger "baton.autotvm".

    Raises
    ------
    RecordError
        An input has another shape, or a convolution has no record.
    """

    def __init__(
        self,
        graph: Any,
        input_shapes: Mapping[str, Sequence[int]],
        records: str | os.PathLike | Iterable[Record],
        target_ops: Sequence[Any],
        target: Any,
        max_sch_num: int = 20,
        dtype: str = "float32",
        verbose: bool = True,
        log_file: str = "graph_tuner.log",
        log_level: int = logging.DEBUG,
        name: str = "graph_tuner",
    ) -> None:
        self.target = targets.parse(target)
        self.dtype = dtype
        self._logger = logging.getLogger("baton.autotvm")
        self._level = logging.INFO if verbose else logging.DEBUG
        mod = as_module(graph)
        _check_inputs(mod, input_shapes)
        names = {str(getattr(op, "name", op)).removeprefix("relax.") for op in target_ops}
        self.network: Network = network_of(mod, self.target, names)
        if isinstance(records, (str, os.PathLike)):
            records = load_from_file(records)
        found = _candidates(records, max_sch_num)
        self._records: dict[int, list[Record]] = {}
        for place, node in self._convolutions():
            self._records[place] = found.get(digest(node.task), [])
            if not self._records[place]:
                raise RecordError(
                    f"no record of {node.task}; tune it, or leave its operator out of target_ops"
                )
        self._blocks = self._layouts()
        self.costs = TransformCosts(self.target)
        self._chosen: dict[int, int] | None = None

    def _convolutions(self) -> list[tuple[int, Node]]:
        return [(p, node) for p, node in enumerate(self.network.nodes) if node.workload is not None]

    def _layouts(self) -> dict[int, list[tuple[int, int]]]:
        """(input block, output block) of each choice of each node."""
        blocks: dict[int, list[tuple[int, int]]] = {}
        for place, node in enumerate(self.network.nodes):
            if node.workload is not None:
                blocks[place] = [_blocks_of(inp) for inp, _ in self._records[place]]
                continue
            sources = [blocks[s] for s in node.inputs if s is not None]
            choices = {out for source in sources for _, out in source}
            blocks[place] = [(block, block) for block in sorted(choices)]
        return blocks

    # --- costs -----------------------------------------------------------------------------

    @property
    def layout_transform_perf_records(self) -> list[Record]:
        """Measurements of conversions."""
        return self.costs.records

    def benchmark_layout_transform(
        self,
        min_exec_num: int = 100,
        timeout: float = 10,
        use_rpc: bool = False,
        device_key: str | None = None,
        host: str = "127.0.0.1",
        port: int = 9190,
        n_parallel: int = 1,
        build_func: Any = "default",
        layout_records: Iterable[Record] | None = None,
        target_host: Any | None = None,
        infer_layout: bool = False,
        runner: Any | None = None,
    ) -> None:
        """Find what conversions between layouts cost.

        Parameters
        ----------
        min_exec_num : int
            Runs of each conversion.
        layout_records : iterable of records, optional
            Known costs.
        infer_layout : bool
            Measure a few conversions, or none with `layout_records`, and infer the others.
        runner : LocalRunner or RPCRunner, optional
            With `use_rpc`, one for the tracker's devices of `device_key` is made.
        """
        from ..measure import LocalBuilder, LocalRunner, RPCRunner

        if layout_records is not None:
            self.costs.load(layout_records)
        wanted = list(dict.fromkeys(self._transforms()))
        if infer_layout:
            wanted = (
                [] if self.costs.seconds else wanted[:: max(len(wanted) // MEASURED_TO_INFER, 1)]
            )
        if not wanted:
            return
        timing: dict[str, Any] = {
            "number": min_exec_num, "repeat": 1, "timeout": timeout, "cooldown_interval": 0.0,
        }  # fmt: skip
        if runner is None and use_rpc:
            runner = RPCRunner(str(device_key), host, port, **timing)
        runner = runner or LocalRunner(**timing)
        builder = LocalBuilder(timeout=timeout, n_parallel=n_parallel, build_func=build_func)
        self.costs.measure(wanted, measure_option(builder, runner))
        builder.close()
        self._logger.log(self._level, "measured %d layout conversions", len(wanted))

    def _transforms(self) -> Iterable[Transform]:
        for place, node in enumerate(self.network.nodes):
            for source in node.inputs:
                before = {PLAIN} if source is None else {out for _, out in self._blocks[source]}
                for one in before:
                    for after in {block for block, _ in self._blocks[place]}:
                        if one != after:
                            yield Transform(node.shape, self.dtype, one, after)
            if node.read_plain:
                for _, block in self._blocks[place]:
                    if block != PLAIN:
                        yield Transform(node.out_shape, self.dtype, block, PLAIN)

    def _problem(self) -> tuple[dict[int, np.ndarray], dict[tuple[int, int], np.ndarray]]:
        """Costs of choices and of pairs of choices, in seconds."""
        nodes: dict[int, np.ndarray] = {}
        pairs: dict[tuple[int, int], np.ndarray] = {}
        for place, node in enumerate(self.network.nodes):
            blocks = self._blocks[place]
            own = np.zeros(len(blocks))
            if node.workload is not None:
                own += [sum(r.costs) / len(r.costs) for _, r in self._records[place]]
            for choice, (read, written) in enumerate(blocks):
                own[choice] += sum(
                    self._seconds(node.shape, PLAIN, read) for s in node.inputs if s is None
                )
                if node.read_plain:
                    own[choice] += self._seconds(node.out_shape, written, PLAIN)
            nodes[place] = own
            for source in {s for s in node.inputs if s is not None}:
                times = node.inputs.count(source)
                pairs[source, place] = times * np.array(
                    [
                        [self._seconds(node.shape, written, read) for read, _ in blocks]
                        for _, written in self._blocks[source]
                    ]
                )
        return nodes, pairs

    def _seconds(self, shape: tuple[int, ...], before: int, after: int) -> float:
        return self.costs.of(Transform(shape, self.dtype, before, after))

    # --- result ----------------------------------------------------------------------------

    def run(self, **options: Any) -> None:
        """Choose; see `get_optimal_records` and `write_opt_sch2record_file`."""
        nodes, pairs = self._problem()
        self._chosen = self._solve(nodes, pairs, **options)
        self._logger.log(
            self._level,
            "estimated %.3f ms for convolutions and conversions",
            self.total_seconds * 1e3,
        )

    def _solve(self, nodes: Any, pairs: Any, **options: Any) -> dict[int, int]:
        raise NotImplementedError

    @property
    def total_seconds(self) -> float:
        """Estimated time of all convolutions and conversions under the choices."""
        return total_cost(*self._problem(), self._choices())

    def _choices(self) -> dict[int, int]:
        if self._chosen is None:
            raise RecordError("the graph tuner has not run; call run() first")
        return self._chosen

    def get_optimal_records(self) -> list[Record]:
        """The chosen record of each convolution, in the order of execution.

        Raises
        ------
        RecordError
            `run` was not called.
        """
        chosen = self._choices()
        return [self._records[place][chosen[place]] for place, _ in self._convolutions()]

    def write_opt_sch2record_file(
        self, record_file: str | os.PathLike = "graph_opt_schedule.log"
    ) -> None:
        """Append the chosen records, one line for each convolution, for `apply_graph_best`.

        Raises
        ------
        RecordError
            `run` was not called, or the file can't be written.
        """
        append_lines(record_file, [encode(*record) for record in self.get_optimal_records()])


class DPTuner(BaseGraphTuner):
    """Exact, by dynamic programming; where its tables get too large, as `PBQPTuner`."""

    def _solve(
        self, nodes: Any, pairs: Any, max_num_states: int = 16384, **_: Any
    ) -> dict[int, int]:
        exact = eliminate(nodes, pairs, max_num_states)
        if exact is None:
            self._logger.info("more than %d states; reduced as PBQP", max_num_states)
        return reduce(nodes, pairs) if exact is None else exact


class PBQPTuner(BaseGraphTuner):
    """As a partitioned boolean quadratic problem: fast on any graph, exact on most."""

    def _solve(self, nodes: Any, pairs: Any, **_: Any) -> dict[int, int]:
        return reduce(nodes, pairs)


def _check_inputs(mod: tvm.IRModule, input_shapes: Mapping[str, Sequence[int]]) -> None:
    for var in mod["main"].params:
        wanted = input_shapes.get(var.name)
        present = tuple(getattr(dim, "value", -1) for dim in var.ty.shape.values)
        if wanted is not None and tuple(wanted) != tuple(map(int, present)):
            raise RecordError(
                f"input {var.name} of the graph is {present}, not {tuple(wanted)}; import "
                "the model with that shape"
            )


def _candidates(records: Iterable[Record], most: int) -> dict[bytes, list[Record]]:
    """For each workload the fastest record of each pair of layouts, fastest first."""
    best: dict[bytes, dict[tuple[int, int], Record]] = {}
    for inp, result in records:
        if (
            mean_of(result) == math.inf
            or "tile_ic" not in inp.config
            or "tile_oc" not in inp.config
        ):
            continue
        held = best.setdefault(digest(inp.task.workload), {})
        blocks = _blocks_of(inp)
        if blocks not in held or mean_of(result) < mean_of(held[blocks][1]):
            held[blocks] = (inp, result)
    return {
        key: sorted(held.values(), key=lambda record: mean_of(record[1]))[:most]
        for key, held in best.items()
    }


def _blocks_of(inp: MeasureInput) -> tuple[int, int]:
    return inp.config.size("tile_ic")[-1], inp.config.size("tile_oc")[-1]
