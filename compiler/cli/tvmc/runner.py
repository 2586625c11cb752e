"""`tvmc run`: a package on this machine or over RPC."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm

from compiler import relay
from compiler.runtime import FactoryModule, graph_executor
from compiler.runtime.debugger import debug_executor

from . import TVMCException
from .model import TVMCPackage, TVMCResult

FILL_MODES = ("zeros", "ones", "random")
_KIND = {"cl": "opencl", "gpu": "cuda"}


def generate_tensor_data(shape: tuple[int, ...], dtype: str, fill_mode: str) -> np.ndarray:
    """Values for an input: zeros, ones, or random ones between -1 and 1 (int8: 0 to 127).

    Raises TVMCException: there is no such fill mode.
    """
    if fill_mode == "zeros":
        return np.zeros(shape, dtype)
    if fill_mode == "ones":
        return np.ones(shape, dtype)
    if fill_mode != "random":
        raise TVMCException(f"unknown fill-mode: {fill_mode}; give {', '.join(FILL_MODES)}")
    if "int8" in dtype:
        return np.random.randint(128, size=shape).astype(dtype)
    return np.random.uniform(-1, 1, size=shape).astype(dtype)


def get_input_info(graph_str: str, params: bytes) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Shapes and dtypes of a graph's inputs, by name.

    `graph_str`, `params`: as `TVMCPackage.graph` and `TVMCPackage.params` are.
    """
    graph, weights = json.loads(graph_str), relay.load_param_dict(params)
    shapes, dtypes = (graph["attrs"][each][1] for each in ("shape", "dltype"))
    rows = graph["node_row_ptr"]
    names = {graph["nodes"][node]["name"]: rows[node] for node in graph["arg_nodes"]}
    inputs = {name: entry for name, entry in names.items() if name not in weights}
    return (
        {name: shapes[entry] for name, entry in inputs.items()},
        {name: dtypes[entry] for name, entry in inputs.items()},
    )


def make_inputs_dict(
    shape_dict: Mapping[str, Any],
    dtype_dict: Mapping[str, str],
    inputs: Mapping[str, np.ndarray] | None = None,
    fill_mode: str = "random",
) -> dict[str, np.ndarray]:
    """The given inputs, and values for the others.

    Raises TVMCException: the model has no input of a given name.
    """
    given = dict(inputs or {})
    for name in given:
        if name not in shape_dict:
            raise TVMCException(
                f"the input tensor {name!r} is not in the graph. Expected inputs: "
                f"{list(shape_dict)!r}"
            )
    return {
        name: given[name]
        if name in given
        else generate_tensor_data(tuple(shape), str(dtype_dict[name]), fill_mode)
        for name, shape in shape_dict.items()
    }


def run_module(
    tvmc_package: TVMCPackage,
    device: str,
    hostname: str | None = None,
    port: int | str = 9090,
    rpc_key: str | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    fill_mode: str = "random",
    benchmark: bool = False,
    repeat: int = 10,
    number: int = 10,
    profile: bool = False,
    end_to_end: bool = False,
    options: Mapping[str, Any] | None = None,
) -> TVMCResult:
    """Run a package once, and time it if asked to.

    `device`: "cpu", "cuda"... `hostname`, `port`, `rpc_key`: of an RPC server, or with a key of a
    tracker; without a host, this machine. `inputs`: others are filled by `fill_mode`. `benchmark`:
    time `repeat` times `number` runs. `profile`: print the time of each kernel.
    Raises TVMCException: the package, the inputs or the device do not fit.
    """
    if not isinstance(tvmc_package, TVMCPackage):
        raise TVMCException(
            "This model doesn't seem to have been compiled yet. Try calling tvmc.compile on the "
            "model before running it."
        )
    if options:
        raise TVMCException("options belong to projects of microTVM, which has no successor")
    if hostname is None:
        library, dev = tvmc_package.load(), _device(tvm, device)
    else:
        library, dev = _remote(tvmc_package, device, hostname, int(port), rpc_key)
    executor = library[library.libmod_name](dev)
    module: Any = graph_executor.GraphModule(executor)
    if profile:
        module = debug_executor.GraphModuleDebug(executor, dev, tvmc_package.graph)
    wanted = library.metadata.inputs
    shapes, dtypes = (
        {info.name: getattr(info, each) for info in wanted} for each in ("shape", "dtype")
    )
    module.set_input(make_inputs_dict(shapes, dtypes, inputs, fill_mode))
    module.run()
    if profile:
        print(module.profile())
    times: Any = []
    if benchmark:
        times = module.benchmark(dev, repeat=repeat, number=number, end_to_end=end_to_end)
    count = module.get_num_outputs()
    outputs = {f"output_{index}": module.get_output(index).numpy() for index in range(count)}
    return TVMCResult(outputs, times)


def _device(session: Any, name: str) -> Any:
    """A device by its name, of this machine or of a session."""
    device = session.device(_KIND.get(name, name), 0)
    if not device.exist:
        raise TVMCException(f"there is no device {name!r}")
    return device


def _remote(
    package: TVMCPackage, device: str, host: str, port: int, key: str | None
) -> tuple[FactoryModule, Any]:
    """The library on another machine, and a device of that."""
    from compiler.runtime import remote

    session = (
        tvm.rpc.connect_tracker(host, port).request(key) if key else tvm.rpc.connect(host, port)
    )
    session.upload(package.lib_path)
    name = package.lib_path.rpartition("/")[2]
    return remote.load_module(session, name), _device(session, device)
