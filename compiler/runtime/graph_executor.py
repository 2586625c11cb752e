"""`tvm.contrib.graph_executor` as scripts know it: `GraphModule(lib["default"](dev))`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.errors import InputError
from compiler.runtime.executor import GraphExecutor
from compiler.runtime.factory import FactoryModule
from compiler.runtime.graph_json import metadata_of
from compiler.runtime.remote import RemoteLibrary, is_remote
from compiler.runtime.tensors import copy_into
from compiler.tvm_workarounds.fast_import import tvm


def create(graph_json_str: str, libmod: Any, device: Any = None, *, ctx: Any = None) -> GraphModule:
    """Make an executor from the parts that a library unpacks into.

    Parameters
    ----------
    graph_json_str : str
        `FactoryModule.get_graph_json()`.
    libmod : tvm.runtime.Module or FactoryModule
        `FactoryModule.get_lib()`, possibly exported and loaded by TVM itself, here or by an RPC
        server. Its weights are to be set, with `set_input(**params)` or `load_params`, unless it
        is a FactoryModule.
    device : tvm.runtime.Device or list of them
        Of the machine that loaded the library.
    ctx
        `device` as TVM 0.7 spelled it.

    Raises
    ------
    InputError
        `graph_json_str` is not a graph of Baton's, or there is no device.
    IncompatibleDeviceError
        The library can't run on the device or on this machine's CPU.
    """
    metadata, lib = metadata_of(graph_json_str), libmod
    if is_remote(lib):
        lib = RemoteLibrary(lib, metadata)
    elif not isinstance(lib, FactoryModule):
        # Its kernels may be object code that is still to be linked.
        lib = FactoryModule(tvm.runtime.Executable(lib), metadata, {})
    devices = devices_of(device, ctx)
    return GraphModule(lib[metadata.mod_name](*devices))


def devices_of(device: Any, ctx: Any) -> list[Any]:
    """The devices that one of the two, of which `ctx` is the older name, holds.

    Raises
    ------
    InputError
        Both are given, or none.
    """
    if (device is None) == (ctx is None):
        raise InputError("ctx is an old name of device; give one of them")
    given = ctx if device is None else device
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _forwarded(name: str) -> Any:
    """A method of `GraphModule` that calls the executor's method of the same name."""

    @functools.wraps(getattr(GraphExecutor, name))
    def call(self: GraphModule, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.module, name)(*args, **kwargs)

    return call


class GraphModule:
    """Sets inputs, runs and fetches outputs of one executor.

    Calls of several threads take turns. A thread whose inputs or outputs another thread has
    exchanged meanwhile gets an InputError: use `FactoryModule.session` there, or a GraphModule for
    each thread.

    Parameters
    ----------
    module : GraphExecutor
        What `lib["default"](dev)` returns.

    Attributes
    ----------
    module : GraphExecutor
        Has `time_evaluator` and `["run"]`, `["set_input"]` and so on.
    """

    def __init__(self, module: GraphExecutor) -> None:
        if not isinstance(module, GraphExecutor):
            raise InputError(
                f'GraphModule takes what lib["default"](dev) returns, not {type(module).__name__}'
            )
        self.module = module

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """A function of the underlying executor."""
        return self.module[name]

    set_input = _forwarded("set_input")
    set_input_zero_copy = _forwarded("set_input_zero_copy")
    make_kv_cache = _forwarded("make_kv_cache")
    use_kv_cache = _forwarded("use_kv_cache")
    run = _forwarded("run")
    get_output = _forwarded("get_output")
    get_num_inputs = _forwarded("get_num_inputs")
    get_num_outputs = _forwarded("get_num_outputs")
    get_input_index = _forwarded("get_input_index")
    get_input_info = _forwarded("get_input_info")
    get_output_info = _forwarded("get_output_info")
    load_params = _forwarded("load_params")

    def debug_get_output(self, node: str | int, out: Any = None) -> Any:
        """Raises InputError: only a debug executor keeps what kernels write."""
        raise InputError(
            f"debug_get_output({node!r}): this executor keeps no intermediate tensors; make one "
            "with compiler.runtime.debugger.debug_executor.create"
        )

    def get_input(self, index: str | int, out: Any = None) -> Any:
        """The tensor bound to an input or weight, None if not set; copied into `out` if given."""
        tensor = self.module.get_input(index)
        if out is None or tensor is None:
            return tensor
        return copy_into(tensor, out, f"input {index!r}")

    def share_params(self, other: GraphModule, params_bytes: bytes | bytearray) -> None:
        """Use another module's tensors for the names in a saved dict of weights."""
        self.module.share_params(other.module, params_bytes)

    def benchmark(
        self,
        device: Any,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: Any,
    ) -> tvm.runtime.module.BenchmarkResult:
        """Time runs.

        Parameters
        ----------
        device : tvm.runtime.Device
            The device to wait for.
        func_name : str
            "run".
        repeat, number : int
            `repeat` results, each the mean of `number` runs.
        min_repeat_ms : int, optional
            `number` grows until one result takes at least this long.
        end_to_end : bool
            Include copying the inputs from, and the outputs to, arrays in host memory.
        limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown : int
            As for TVM's `time_evaluator`; the last two also hold end to end.
        **kwargs
            Inputs to set first.

        Returns
        -------
        result : tvm.runtime.module.BenchmarkResult
            In seconds per run.
        """
        if kwargs:
            self.set_input(**kwargs)
        if not end_to_end:
            return self.module.time_evaluator(
                func_name,
                device,
                number=number,
                repeat=repeat,
                min_repeat_ms=min_repeat_ms or 0,
                limit_zero_time_iterations=limit_zero_time_iterations,
                cooldown_interval_ms=cooldown_interval_ms,
                repeats_to_cooldown=repeats_to_cooldown,
            )()
        if func_name != "run":
            raise InputError(f"only 'run' can be timed, not {func_name!r}")
        host_inputs = self._host_inputs()

        def once() -> None:
            self.set_input(host_inputs)
            self.run()
            for index in range(self.get_num_outputs()):
                self.get_output(index).numpy()

        pauses = cooldown_interval_ms, repeats_to_cooldown
        return time_repeats(once, repeat, number, min_repeat_ms, *pauses)

    def _host_inputs(self) -> dict[str, np.ndarray]:
        """Copies of the inputs as they are set now."""
        names = [info.name for info in self.module.metadata.inputs]
        tensors = {name: self.module.get_input(name) for name in names}
        missing = [name for name, tensor in tensors.items() if tensor is None]
        if missing:
            raise InputError(f"set the inputs to benchmark with first: {', '.join(missing)}")
        return {name: tensor.numpy() for name, tensor in tensors.items()}


def time_repeats(
    once: Callable[[], None],
    repeat: int,
    number: int,
    min_repeat_ms: int | None,
    cooldown_interval_ms: int,
    repeats_to_cooldown: int,
) -> tvm.runtime.module.BenchmarkResult:
    """Seconds per call, `repeat` means of at least `number` calls, after one call to warm up."""
    once()
    min_repeat_s = (min_repeat_ms or 0) / 1e3
    results = []
    for index in range(repeat):
        while True:
            start = time.perf_counter()
            for _ in range(number):
                once()
            elapsed = time.perf_counter() - start
            if elapsed >= min_repeat_s:
                break
            number = int(max(min_repeat_s / max(elapsed / number, 1e-9) + 1, number * 1.618))
        results.append(elapsed / number)
        if cooldown_interval_ms > 0 and (index + 1) % repeats_to_cooldown == 0:
            time.sleep(cooldown_interval_ms / 1e3)
    return tvm.runtime.module.BenchmarkResult(results)
