"""Measured engines: Baton and its peers, each loaded and run in its own worker process.

Every engine runs the same ONNX file on the same inputs with the same number of threads; none but
"openvino-bf16" computes float32 models in less than float32.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compiler.errors import BatonError

from .models import devices_of

if TYPE_CHECKING:
    import numpy as np

Inputs = Mapping[str, "np.ndarray"]
_RUNTIME_ALONE = {"TVM_USE_RUNTIME_LIB": "1"}

Built = tuple[list[tuple[str, tuple[int, ...], str]], str]
"""(name, shape, dtype) of each input; the kind of the device that TVM's executor must be given."""


class Engine:
    """A model that is ready to run on inputs that are already set.

    Libraries are measured with TVM's runtime alone, as they are deployed (`environment`). Modules
    are imported before the clocks of `build` and of loading start.
    """

    module: str  # the Python module that it needs
    imported_to_load: tuple[str, ...]
    imported_to_build: tuple[str, ...] = ()  # none: it loads the model's file itself
    environment: Mapping[str, str] = {}

    def __init__(self, path: str, inputs: Inputs, threads: int, device: str) -> None: ...

    @staticmethod
    def build(model: str, library: str, options: Mapping[str, Any]) -> Built:
        """Compile the model and export it, in a separate process."""
        raise NotImplementedError

    def run(self) -> None:
        """One inference; returns when the outputs are there."""
        raise NotImplementedError

    def outputs(self) -> list[np.ndarray]:
        """Results of the last run, in the model's order."""
        raise NotImplementedError


class BatonEngine(Engine):
    """A library that Baton exported."""

    module = "tvm"
    imported_to_load = ("compiler.runtime.load", "compiler.runtime.graph_executor")
    imported_to_build = (
        *("onnx", "compiler.relay.build_module", "compiler.relay.frontend.onnx.graph"),
    )
    environment = _RUNTIME_ALONE

    @staticmethod
    def build(model: str, library: str, options: Mapping[str, Any]) -> Built:
        from pathlib import Path

        from .compile import BuildOptions, compile_model

        shapes = {name: tuple(shape) for name, shape in options["shapes"].items()}
        build_options = BuildOptions(**{**options, "shapes": shapes})
        metadata = compile_model(Path(model), build_options, Path(library)).library.metadata
        return [(info.name, info.static_shape, info.dtype) for info in metadata.inputs], "cpu"

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


class RelaxEngine(Engine):
    """A library that TVM's own importer and default Relax pipeline built."""

    module = "tvm"
    imported_to_load = ("tvm.runtime.vm",)
    imported_to_build = ("onnx", "tvm.relax.frontend.onnx", "compiler.target")
    environment = _RUNTIME_ALONE

    @staticmethod
    def build(model: str, library: str, options: Mapping[str, Any]) -> Built:
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
        return inputs, str(built_for.kind.name) if target.is_gpu(built_for) else "cpu"

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


class OnnxRuntimeEngine(Engine):
    """onnxruntime's CPU provider with every graph optimization."""

    module = "onnxruntime"
    imported_to_load = ("onnxruntime",)

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


class OpenVinoEngine(Engine):
    """OpenVINO's CPU plugin, compiled for latency in float32."""

    module = "openvino"
    imported_to_load = ("openvino",)
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


ENGINES: dict[str, type[Engine]] = {
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
    """Memory of this process. Raises BatonError: not on Linux."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            fields = dict(line.split(":", 1) for line in status)
    except OSError as error:
        raise BatonError("memory is read from /proc, which this system does not have") from error
    sizes = (int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "RssFile", "VmHWM"))
    return MemoryUse(*sizes)
