"""Times and results of a library's kernels as a table, a Chrome trace and dumped tensors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from ...support.atomic_file import write_file

GRAPH_DUMP_FILE_NAME = "_tvmdbg_graph_dump.json"
CHROME_TRACE_FILE_NAME = "_tvmdbg_execution_trace.json"
TENSORS_FILE_NAME = "output_tensors.params"

_HEADER = (
    "Node Name",
    "Ops",
    "Time(us)",
    "Time(%)",
    "Shape",
    "Inputs",
    "Outputs",
    "Measurements(us)",
)


class DebugResult:
    """Measurements of a debug executor.

    `nodes`: "name", "op" ("param" or "tvm_op") and "attrs" with "num_inputs" and "num_outputs".
    `dump_path`: the folder to write to. `times`: per node, seconds of each repeat; zeros for inputs
    and weights. `outputs`: per node, what it is or wrote.
    """

    def __init__(self, nodes: Sequence[dict[str, Any]], dump_path: Path) -> None:
        self._nodes = list(nodes)
        self._dump_path = dump_path
        self.times: list[list[float]] = []
        self.outputs: list[list[Any]] = []
        graph = {"nodes": self._nodes}
        write_file(dump_path / GRAPH_DUMP_FILE_NAME, json.dumps(graph, indent=4))

    def get_graph_nodes(self) -> list[dict[str, Any]]:
        """Inputs and weights, then the kernels in the order of their calls."""
        return self._nodes

    def get_graph_node_output_num(self, node: dict[str, Any]) -> int:
        """How many tensors a node is or writes."""
        return 1 if node["op"] == "param" else int(node["attrs"]["num_outputs"])

    def get_output_tensors(self) -> dict[str, Any]:
        """Tensors by "<node>____topo-index:<i>____output-num:<j>"."""
        return {
            f"{node['name']}____topo-index:{index}____output-num:{number}": tensor
            for index, (node, tensors) in enumerate(zip(self._nodes, self.outputs))
            for number, tensor in enumerate(tensors)
        }

    def dump_output_tensor(self) -> None:
        """Write all tensors to `output_tensors.params`, for `relay.load_param_dict`."""
        data = tvm.runtime.save_param_dict(self.get_output_tensors())
        write_file(self._dump_path / TENSORS_FILE_NAME, data)

    def dump_chrome_trace(self) -> None:
        """Write the times as a trace for chrome://tracing."""
        events, start = [], 0.0
        for node, times in zip(self._nodes, self.times):
            end = start + float(np.mean(times))
            for phase, moment in (("B", start), ("E", end)):
                events.append(
                    {"ts": moment * 1e6, "tid": 1, "pid": 1, "name": node["name"], "ph": phase}
                )
            start = end
        trace = {"displayTimeUnit": "ns", "traceEvents": events}
        write_file(self._dump_path / CHROME_TRACE_FILE_NAME, json.dumps(trace))

    def get_debug_result(self, sort_by_time: bool = True) -> str:
        """The kernels as a table, the slowest first or in the order of their calls."""
        total = sum(float(np.mean(times)) for times in self.times) or 1e-9
        rows = [
            self._row(node, times, total, tensor)
            for node, times, tensors in zip(self._nodes, self.times, self.outputs)
            if node["op"] != "param"
            for tensor in tensors
        ]
        if sort_by_time:
            rows.sort(key=lambda row: float(row[2]), reverse=True)
            rows.append(["Total_time", "-", str(round(total * 1e6, 3)), *"-----"])
        rules = ["-" * len(title) for title in _HEADER]
        table = [list(_HEADER), rules, *rows]
        widths = [max(len(row[column]) for row in table) + 2 for column in range(len(_HEADER))]
        return "\n".join(
            "".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in table
        )

    def display_debug_result(self, sort_by_time: bool = True) -> None:
        """Print the table."""
        print(self.get_debug_result(sort_by_time))

    @staticmethod
    def _row(node: dict[str, Any], times: Sequence[float], total: float, tensor: Any) -> list[str]:
        mean = float(np.mean(times))
        return [
            str(node["name"]),
            str(node["op"]),
            str(round(mean * 1e6, 3)),
            str(round(mean / total * 100, 3)),
            str(tuple(tensor.shape)),
            str(node["attrs"]["num_inputs"]),
            str(node["attrs"]["num_outputs"]),
            str([round(each * 1e6, 3) for each in times]),
        ]
