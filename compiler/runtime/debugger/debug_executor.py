"""`tvm.contrib.debugger.debug_executor`: an executor that times and dumps every kernel."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm.runtime.module import BenchmarkResult

from compiler.errors import InputError
from compiler.runtime import graph_executor
from compiler.runtime.debugger.debug_result import DebugResult
from compiler.runtime.debugger.trace import TRACE_KERNELS, KernelCall, Tracer
from compiler.runtime.remote import RemoteExecutor
from compiler.runtime.tensors import copy_into


def create(
    graph_json_str: str,
    libmod: Any,
    device: Any = None,
    dump_root: str | None = None,
    *,
    ctx: Any = None,
) -> GraphModuleDebug:
    """Make a debug executor from the parts that a library unpacks into.

    `graph_json_str`, `libmod`, `device`, `ctx`: as for `graph_executor.create`. `dump_root`: folder
    to dump to; a temporary one by default.
    Raises InputError, IncompatibleDeviceError: as `graph_executor.create` does.
    """
    devices = graph_executor.devices_of(device, ctx)
    made = graph_executor.create(graph_json_str, libmod, devices)
    return GraphModuleDebug(made.module, devices, graph_json_str, dump_root)


logger = logging.getLogger("baton.debugger")


class GraphModuleDebug(graph_executor.GraphModule):
    """A GraphModule that knows its kernels.

    The kernels are those of the built library, operators fused; they are known once the inputs
    are set, since a run records them. On an RPC server, tensors between kernels are an InputError;
    a server without Baton reports only whole runs, so that times have one row, `main`.

    Parameters
    ----------
    module : GraphExecutor
        What `lib["default"](dev)` or `lib["debug_create"]("default", dev)` returns.
    device : list of tvm.runtime.Device
    graph_json_str : str
        Accepted; the kernels come from a recorded run.
    dump_root : str, optional
        Folder to dump to; a temporary one by default, which `exit` removes.
    """

    def __init__(
        self, module: Any, device: Any, graph_json_str: str, dump_root: str | None = None
    ) -> None:
        super().__init__(module)
        self._devices = list(device) if isinstance(device, (list, tuple)) else [device]
        self._own_root = dump_root is None
        self._dump_root = Path(dump_root or tempfile.mkdtemp(prefix="tvmdbg_"))
        name = f"{self._devices[0].type}_{self._devices[0].index}".upper()
        self._dump_path = self._dump_root / f"_tvmdbg_device_{name}"
        self._dump_path.mkdir(parents=True, exist_ok=True)
        self._is_remote = isinstance(module, RemoteExecutor)
        self._tracer = Tracer(self._devices)
        if not self._is_remote:
            module.set_instrument(self._tracer)
        elif (read := module.call_with_machine(TRACE_KERNELS)) is None:
            logger.warning(
                "debug executor over RPC: the server has no Baton, so times are of whole runs, not "
                "of kernels; start it with: baton run -m tvm.exec.rpc_server"
            )
        self._read_calls = read if self._is_remote else None
        self._datum: DebugResult | None = None

    @property
    def debug_datum(self) -> DebugResult:
        """The nodes, their times and tensors; the inputs must be set."""
        if self._datum is None:
            self._datum = self._record()
        return self._datum

    def run(
        self,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 1,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        sort_by_time: bool = True,
        **input_dict: Any,
    ) -> None:
        """Run, measure every kernel, dump graph, tensors and trace, and print the table.

        Parameters
        ----------
        number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, \
repeats_to_cooldown
            As for `run_individual`.
        sort_by_time : bool
            The slowest kernel first, instead of the order of their calls.
        **input_dict
            Inputs to set first.

        Raises
        ------
        InputError
            As `GraphModule.run` does.
        """
        if input_dict:
            self.set_input(**input_dict)
        if self._is_remote:
            print(self.profile())
            return
        self._datum = datum = self._record()
        datum.times = self.run_individual(
            number,
            repeat,
            min_repeat_ms,
            limit_zero_time_iterations,
            cooldown_interval_ms,
            repeats_to_cooldown,
        )
        datum.dump_output_tensor()
        datum.dump_chrome_trace()
        datum.display_debug_result(sort_by_time)

    def run_individual(
        self,
        number: int,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
    ) -> list[list[float]]:
        """Time every kernel where it stands, in whole runs.

        Parameters
        ----------
        number : int
            Runs that one result is the mean of.
        repeat : int
            How many results.
        min_repeat_ms : int
            `number` grows until a result takes at least this long.
        limit_zero_time_iterations : int
            Accepted; no run takes no time.
        cooldown_interval_ms, repeats_to_cooldown : int
            The pause after that many results.

        Returns
        -------
        times : list of list of float
            Per node of `debug_datum`, seconds of each repeat; zeros for inputs and weights.
        """
        count = self.get_num_inputs()
        times = [[0.0] * repeat for _ in range(count)] + [[] for _ in self._once()]
        for index in range(repeat):
            start = time.perf_counter()
            runs: list[list[KernelCall]] = []
            while len(runs) < number or (time.perf_counter() - start) * 1e3 < min_repeat_ms:
                runs.append(self._once())
            means = [sum(call.seconds for call in calls) / len(runs) for calls in zip(*runs)]
            for row, mean in zip(times[count:], means):
                row.append(mean)
            if cooldown_interval_ms and (index + 1) % repeats_to_cooldown == 0:
                time.sleep(cooldown_interval_ms / 1e3)
        return times

    def run_individual_node(
        self, index: int, number: int = 10, *timing: int, **options: int
    ) -> BenchmarkResult:
        """Times of one node; `timing` and `options` are the arguments of `run_individual`."""
        times = self.run_individual(number, *timing, **options)
        if not 0 <= index < len(times):
            raise InputError(f"no node {index}; there are {len(times)}")
        return BenchmarkResult(times[index])

    def debug_get_output(self, node: int | str, out: Any = None) -> Any:
        """Run, and return what a node is or wrote.

        Parameters
        ----------
        node : int or str
            Index or name in `debug_datum.get_graph_nodes()`.
        out : tvm.runtime.Tensor, optional
            Copied into, and returned, when given.

        Raises
        ------
        InputError
            There is no such node, or an input is not set.
        """
        self._datum = datum = self._record()
        names = [each["name"] for each in datum.get_graph_nodes()]
        if isinstance(node, str):
            if node not in names:
                raise InputError(f"no node {node!r}; the nodes are {', '.join(names)}")
            node = names.index(node)
        if not 0 <= node < len(names):
            raise InputError(f"no node {node}; there are {len(names)}")
        result = datum.outputs[node][0]
        return result if out is None else copy_into(result, out, f"node {names[node]!r}")

    def get_node_output(self, index: int, out_index: int = 0) -> Any:
        """Return the output of the node in the last recorded run."""
        return self.debug_datum.outputs[index][out_index]

    def profile(self, collectors: Sequence[Any] | None = None, **input_dict: Any) -> Report:
        """Times of one run, after one that does not count.

        Raises
        ------
        InputError
            `collectors` are asked for: they counted events of TVM's own profiler, which is gone.
        """
        if collectors:
            raise InputError(
                "profile(collectors=...) needs TVM's profiler of hardware events, which TVM no "
                "longer has; measure the process with perf instead"
            )
        if input_dict:
            self.set_input(**input_dict)
        self._once()
        return Report(
            [
                {"Name": call.symbol, "Duration (us)": call.seconds * 1e6, "Count": 1}
                for call in self._once()
            ]
        )

    def exit(self) -> None:
        """Remove the temporary folder that the dumps went to."""
        if self._own_root and self._dump_root.is_dir():
            shutil.rmtree(self._dump_root)

    def _once(self) -> list[KernelCall]:
        if self._read_calls is not None:
            self._read_calls()  # the server forgets earlier runs
            super().run()
            return [KernelCall(name, seconds=took) for name, took in json.loads(self._read_calls())]
        if self._is_remote:
            super().run()  # the server binds the inputs
            seconds = self.benchmark(self._devices[0], number=1, repeat=1).mean
            return [KernelCall("main", seconds=seconds)]
        self._tracer.start(frozenset())
        super().run()
        return self._tracer.calls

    def _record(self) -> DebugResult:
        """Run once with every result copied."""
        if self._is_remote:
            raise InputError(
                "an RPC server returns no tensors between kernels: use profile(), run_individual() "
                "or get_output() there, or run the library on this machine"
            )
        count = self.get_num_inputs()
        given = [self.get_input(index) for index in range(count)]
        handles = frozenset(tensor.__chandle__() for tensor in given if tensor is not None)
        self._tracer.start(handles, keep=True)
        super().run()
        calls = self._tracer.calls
        infos = [*self.module.metadata.inputs, *self.module.metadata.params]
        nodes = [
            {"op": "param", "name": info.name, "attrs": {"num_inputs": "0", "num_outputs": "1"}}
            for info in infos
        ]
        seen: dict[str, int] = {}
        for call in calls:
            seen[call.symbol] = number = seen.get(call.symbol, -1) + 1
            nodes.append(
                {
                    "op": "tvm_op",
                    "name": f"{call.symbol}_{number}" if number else call.symbol,
                    "attrs": {
                        "func_name": call.symbol,
                        "num_inputs": str(call.inputs),
                        "num_outputs": str(len(call.outputs)),
                    },
                }
            )
        datum = DebugResult(nodes, self._dump_path)
        datum.outputs = [[tensor] for tensor in given] + [call.outputs for call in calls]
        datum.times = [[0.0]] * count + [[call.seconds] for call in calls]
        return datum


class Report:
    """Times of the kernels of one run.

    `calls`: "Name", "Duration (us)" and "Count", in the order of the calls.
    """

    def __init__(self, calls: list[dict[str, Any]]) -> None:
        self.calls = calls

    def table(self, sort: bool = True) -> str:
        """One line per call."""
        rows = sorted(self.calls, key=lambda call: -call["Duration (us)"]) if sort else self.calls
        width = max([len(row["Name"]) for row in rows] + [4]) + 2
        lines = [f"{'Name':{width}}Duration (us)  Count"]
        lines += [
            f"{row['Name']:{width}}{row['Duration (us)']:13.2f}  {row['Count']}" for row in rows
        ]
        return "\n".join(lines)

    def csv(self) -> str:
        """Comma-separated values with a header."""
        lines = ["Name,Duration (us),Count"]
        lines += [f"{row['Name']},{row['Duration (us)']},{row['Count']}" for row in self.calls]
        return "\n".join(lines) + "\n"

    def json(self) -> str:
        """The calls, and an empty object for each kind of figure that is not measured."""
        return json.dumps({"calls": self.calls, "device_metrics": {}, "configuration": {}})

    def __str__(self) -> str:
        return self.table()
