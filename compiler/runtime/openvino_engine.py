"""OpenVINO's CPU plugin as the runtime of external subgraphs.

It computes float32 in float32. Inputs and outputs are the caller's tensors, without copies where
all extents of a result are known; results of dynamic shapes are copied. Each calling thread has its
own request.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler.errors import BuildError, InputError, LoadError


def load(header: Mapping[str, Any], model: bytes) -> Callable[[Sequence[Any], Sequence[Any]], None]:
    """Compile the ONNX model of a subgraph of the back end `openvino`.

    `header`: has the number of `threads`. If it is 0, `TVM_NUM_THREADS` if that is set, else what
    OpenVINO chooses. Raises LoadError: OpenVINO is not installed, or rejects the model.
    """
    try:
        import openvino
    except ImportError as error:
        raise LoadError(
            "a subgraph runs in OpenVINO, which is not installed: pip install openvino"
        ) from error
    config: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    threads = header.get("threads") or os.environ.get("TVM_NUM_THREADS", "")
    if str(threads).isdecimal() and int(threads):
        config["INFERENCE_NUM_THREADS"] = int(threads)
    core = openvino.Core()
    try:
        compiled = core.compile_model(core.read_model(model), "CPU", config)
    except RuntimeError as error:
        reason = (str(error).strip().splitlines() or ["no reason"])[-1]
        raise LoadError(f"OpenVINO can't compile a subgraph: {reason}") from error
    return _Requests(openvino, compiled).run


class _Requests:
    """Requests of a compiled model, one for each thread that runs it."""

    def __init__(self, openvino: Any, compiled: Any) -> None:
        self._openvino = openvino
        self._compiled = compiled
        self._static = [each.partial_shape.is_static for each in compiled.outputs]
        self._local = threading.local()

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Compute the outputs in place.

        Raises InputError: an input has no elements, which OpenVINO computes wrong in attention.
        """
        for tensor in inputs:
            if 0 in tensor.shape:
                raise InputError(
                    f"a subgraph in OpenVINO got a tensor of shape {tuple(tensor.shape)}, without "
                    "elements, which OpenVINO may compute wrong; use another back end"
                )
        if not hasattr(self._local, "request"):
            self._local.request = self._compiled.create_infer_request()
        request = self._local.request
        for number, tensor in enumerate(inputs):
            request.set_input_tensor(number, self._shared(tensor))
        for number, tensor in enumerate(outputs):
            if self._static[number]:
                request.set_output_tensor(number, self._shared(tensor))
        request.infer()
        for number, tensor in enumerate(outputs):
            if not self._static[number]:
                _copy(number, request.get_output_tensor(number).data, np.from_dlpack(tensor))

    def _shared(self, tensor: Any) -> Any:
        array = np.from_dlpack(tensor)
        if not array.flags.writeable:  # OpenVINO takes writable memory alone; inputs are only read
            array = array.view()
            array.flags.writeable = True
        return self._openvino.Tensor(array, shared_memory=True)


def _copy(number: int, result: np.ndarray, output: np.ndarray) -> None:
    if (result.shape, result.dtype) != (output.shape, output.dtype):
        raise BuildError(
            f"output {number} of a subgraph in OpenVINO has shape {result.shape} and dtype "
            f"{result.dtype}; {output.shape} and {output.dtype} were promised"
        )
    np.copyto(output, result)
