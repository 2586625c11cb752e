"""Measured engines: Baton and its peers, each loaded and run in its own worker process.

Every engine runs the same ONNX file on the same inputs with the same number of threads; none but
"openvino-bf16" computes float32 models in less than float32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from compiler.errors import BatonError

from .devices import devices_of

if TYPE_CHECKING:
    import numpy as np

Inputs = Mapping[str, "np.ndarray"]

MODULE_OF = {
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "openvino-bf16": "openvino",
    "relax": "tvm",
}
"""The peers, and the Python module each needs."""

ENVIRONMENT: dict[str, dict[str, str]] = {
    "baton": {"TVM_USE_RUNTIME_LIB": "1"},
    "relax": {"TVM_USE_RUNTIME_LIB": "1"},
}
"""Libraries are measured with TVM's runtime alone, as they are deployed."""


IMPORTED_TO_BUILD = {
    "baton": ("onnx", "compiler.relay.build_module", "compiler.relay.frontend.onnx.graph"),
    "relax": ("onnx", "tvm.relax.frontend.onnx", "compiler.target"),
}
IMPORTED_TO_LOAD = {
    "baton": ("compiler.runtime.load", "compiler.runtime.graph_executor"),
    "relax": ("tvm.runtime.vm",),
    "onnxruntime": ("onnxruntime",),
    "openvino": ("openvino",),
    "openvino-bf16": ("openvino",),
}
"""Modules that are imported before the clock starts."""


@dataclass(frozen=True)
class Built:
    """Facts about a library that are known after its build."""

    inputs: list[tuple[str, tuple[int, ...], str]]
    # Kind of the device that TVM's executor must be given; Baton's libraries know it
    device: str = "cpu"


class Engine(Protocol):
    """A model that is ready to run on inputs that are already set."""

    def run(self) -> None:
        """One inference; returns when the outputs are there."""

    def outputs(self) -> list[np.ndarray]:
        """Results of the last run, in the model's order."""


# ---------------------------------------------------------------- builds, in a process before


def build_baton(model: str, library: str, options: Mapping[str, Any]) -> Built:
    """Compile the model with Baton and export it."""
    from pathlib import Path

    from .compile import BuildOptions, compile_model

    shapes = {name: tuple(shape) for name, shape in options["shapes"].items()}
    build_options = BuildOptions(**{**options, "shapes": shapes})
    compiled = compile_model(Path(model), build_options, Path(library))
    metadata = compiled.library.metadata
    return Built([(info.name, info.static_shape, info.dtype) for info in metadata.inputs])


def build_relax(model: str, library: str, options: Mapping[str, Any]) -> Built:
    """Compile the model with TVM's own importer and default Relax pipeline, and export it."""
    import onnx
    import tvm
    from tvm.relax.frontend.onnx import from_onnx

    from compiler import target

    proto = onnx.load(model)
    shapes = {name: list(shape) for name, shape in options["shapes"].items()}
    mod = from_onnx(proto, shape_dict=shapes or None, keep_params_in_input=False)
    built_for = target.parse(options["target"], options["target_host"])
    tvm.compile(mod, target=built_for).export_library(library)
    inputs = [
        (var.name, tuple(int(extent) for extent in var.ty.shape), str(var.ty.dtype))
        for var in mod["main"].params
    ]
    return Built(inputs, str(built_for.kind.name) if target.is_gpu(built_for) else "cpu")


BUILDERS: dict[str, Callable[[str, str, Mapping[str, Any]], Built]] = {
    "baton": build_baton,
    "relax": build_relax,
}
"""Engines whose libraries are built in one process and loaded by another."""


# ---------------------------------------------------------------- engines, in the worker


class BatonEngine:
    """A library that Baton exported."""

    def __init__(self, path: str, inputs: Inputs, threads: int, device: str) -> None:
        from compiler.runtime import graph_executor, load_module

        library = load_module(path)
        self._devices = devices_of(library)
        self._module = graph_executor.GraphModule(library[library.libmod_name](self._devices))
        self._module.set_input(inputs)

    def run(self) -> None:
        self._module.run()
        self._devices[0].sync()

    def outputs(self) -> list[np.ndarray]:
        return [
            self._module.get_output(index).numpy()
            for index in range(self._module.get_num_outputs())
        ]


class RelaxEngine:
    """A library that TVM's default Relax pipeline built."""

    def __init__(self, path: str, inputs: Inputs, threads: int, device: str) -> None:
        import tvm
        from tvm.runtime.vm import VirtualMachine

        module = tvm.runtime.load_module(path)
        self._device = tvm.device(device, 0)
        self._main = VirtualMachine(module, self._device)["main"]
        self._inputs = [tvm.runtime.tensor(value, self._device) for value in inputs.values()]
        self._result: Any = None

    def run(self) -> None:
        self._result = self._main(*self._inputs)
        self._device.sync()

    def outputs(self) -> list[np.ndarray]:
        single = hasattr(self._result, "numpy")
        return [tensor.numpy() for tensor in ([self._result] if single else self._result)]


class OnnxRuntimeEngine:
    """onnxruntime's CPU provider with every graph optimization."""

    def __init__(self, path: str, inputs: Inputs, threads: int, device: str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        self._inputs = dict(inputs)
        self._outputs: list[np.ndarray] = []

    def run(self) -> None:
        self._outputs = self._session.run(None, self._inputs)

    def outputs(self) -> list[np.ndarray]:
        return self._outputs


class OpenVinoEngine:
    """OpenVINO's CPU plugin, compiled for latency in float32."""

    precision = "f32"

    def __init__(self, path: str, inputs: Inputs, threads: int, device: str) -> None:
        import openvino

        core = openvino.Core()
        model = core.read_model(path)
        if model.is_dynamic():
            model.reshape({name: list(value.shape) for name, value in inputs.items()})
        config = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": self.precision,
        }
        compiled = core.compile_model(model, "CPU", config)
        self._request = compiled.create_infer_request()
        for name, value in inputs.items():
            self._request.set_tensor(name, openvino.Tensor(value, shared_memory=True))
        self._inputs = inputs  # whose memory the tensors share
        self._count = len(compiled.outputs)

    def run(self) -> None:
        self._request.infer()

    def outputs(self) -> list[np.ndarray]:
        return [self._request.get_output_tensor(index).data for index in range(self._count)]


class OpenVinoBFloat16Engine(OpenVinoEngine):
    """OpenVINO with the hint that it may compute in bfloat16."""

    precision = "bf16"


ENGINES: dict[str, Callable[[str, Inputs, int, str], Engine]] = {
    "baton": BatonEngine,
    "relax": RelaxEngine,
    "onnxruntime": OnnxRuntimeEngine,
    "openvino": OpenVinoEngine,
    "openvino-bf16": OpenVinoBFloat16Engine,
}


def measure(engine: Engine, seconds: float, at_least: int) -> list[float]:
    """Milliseconds of consecutive runs until the time is up.

    `engine`: has run before. `at_least`: how many runs are made even if that takes up to five times
    as long.
    """
    times: list[float] = []
    begin = now = time.perf_counter()
    while not times or now < begin + (5 * seconds if len(times) < at_least else seconds):
        start = time.perf_counter()
        engine.run()
        now = time.perf_counter()
        times.append((now - start) * 1e3)
    return times


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of a process that are in memory, pages of mapped files included."""

    resident: int  # now
    of_files: int  # those of `resident` that are pages of files, such as code and mapped weights
    peak: int  # at most, since the process started


def memory_use() -> MemoryUse:
    """What this process has in memory. Raises BatonError: not on Linux."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            fields = dict(line.split(":", 1) for line in status)
    except OSError as error:
        raise BatonError("memory is read from /proc, which this system does not have") from error
    sizes = (int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "RssFile", "VmHWM"))
    return MemoryUse(*sizes)
