"""`tvm.contrib.graph_executor` as scripts know it: `GraphModule(lib["default"](dev))`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler.errors import InputError
from compiler.runtime.executor import GraphExecutor
from compiler.runtime.factory import FactoryModule
from compiler.runtime.graph_json import metadata_of
from compiler.runtime.kv_cache import KVCache
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

    def set_input(
        self, key: str | int | Mapping[str, Any] | None = None, value: Any = None, **params: Any
    ) -> None:
        """Copy values into inputs by name, index, dict or keywords.

        Values are numpy arrays, TVM tensors on any device, lists or numbers, of exactly the
        input's shape. Raises InputError as `GraphExecutor.set_input` does.
        """
        self.module.set_input(key, value, **params)

    def set_input_zero_copy(self, key: str | int, value: Any) -> None:
        """Use the caller's tensor itself as an input; see `GraphExecutor.set_input_zero_copy`."""
        self.module.set_input_zero_copy(key, value)

    def make_kv_cache(self) -> KVCache:
        """An empty cache for a text; see `GraphExecutor.make_kv_cache`."""
        return self.module.make_kv_cache()

    def use_kv_cache(self, cache: KVCache) -> None:
        """Have runs add rows to a cache; see `GraphExecutor.use_kv_cache`."""
        self.module.use_kv_cache(cache)

    def run(self, **input_dict: Any) -> None:
        """Set the given inputs, then compute the outputs."""
        self.module.run(**input_dict)

    def get_output(self, index: int, out: Any = None) -> Any:
        """The result of the last run, as a tensor that no later run changes."""
        return self.module.get_output(index, out)

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

    def get_num_inputs(self) -> int:
        """The number of inputs and weights."""
        return self.module.get_num_inputs()

    def get_num_outputs(self) -> int:
        """The number of outputs."""
        return self.module.get_num_outputs()

    def get_input_index(self, name: str) -> int:
        """The index of an input or weight, -1 if there is none of that name."""
        return self.module.get_input_index(name)

    def get_input_info(self) -> tuple[dict[str, tuple[int | str, ...]], dict[str, str]]:
        """Shapes by name and dtypes by name, inputs first, then the weights p0, p1, ..."""
        return self.module.get_input_info()

    def get_output_info(self) -> tuple[dict[str, tuple[int | str, ...]], dict[str, str]]:
        """Shapes by name and dtypes by name of the outputs."""
        return self.module.get_output_info()

    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Set inputs and weights from what `tvm.runtime.save_param_dict` wrote."""
        self.module.load_params(params_bytes)

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

        return tvm.runtime.module.BenchmarkResult(
            time_repeats(
                once,
                repeat,
                number,
                (min_repeat_ms or 0) / 1e3,
                cooldown_interval_ms / 1e3,
                repeats_to_cooldown,
            )
        )

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
    min_repeat_s: float,
    cooldown_s: float,
    repeats_to_cooldown: int,
) -> Sequence[float]:
    """Seconds per call, `repeat` means of at least `number` calls, after one call to warm up."""
    once()
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
        if cooldown_s > 0 and (index + 1) % repeats_to_cooldown == 0:
            time.sleep(cooldown_s)
    return results
