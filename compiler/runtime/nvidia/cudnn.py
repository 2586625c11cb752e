"""Convolutions in cuDNN: act(x * w + bias), with channels first or last."""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from compiler.errors import LoadError

from . import FILES, PACKAGES
from .library import Library, PerDevice, pointer, stream

# Of cudnn_graph.h and cudnn_ops.h.
_TYPES = {"float32": 0, "float16": 2, "bfloat16": 9}
_FORMATS = {"NCHW": 0, "NHWC": 1}
_FLOAT = 0
_DEFAULT_MATH, _FMA_MATH, _TENSOR_CORES = 0, 3, (1, 2)
_CROSS_CORRELATION = 1
_RELU, _IDENTITY = 1, 5
_PRECOMPUTED_GEMM = 1  # the only algorithm that adds a bias and leaves the rest as it is
_ALGORITHMS = 8


@dataclass(frozen=True)
class Convolution:
    """A convolution in two dimensions."""

    # x, w, y: shapes of data, weights and result: (n, c, h, w), (out, c / groups, h, w) and (n,
    # out, h, w), in whatever order `layout` has them in memory
    x: list[int]
    w: list[int]
    y: list[int]
    layout: str  # "NCHW", with weights OIHW, or "NHWC", with weights OHWI
    # strides, padding, dilation: of height and width; the padding is the same on both sides
    strides: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int
    dtype: str
    tf32: bool  # whether tensor cores may multiply float32, of which they keep 10 bits
    at: list[int]  # which of the subgraph's inputs are data and weights
    bias: int | None = None  # which input has a number for each channel of the result
    relu: bool = False


class _Performance(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t."""

    _fields_ = (
        ("algorithm", ctypes.c_int),
        ("status", ctypes.c_int),
        ("time", ctypes.c_float),
        ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int),
        ("math", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    )


@cache
def _library() -> Library:
    return Library("cuDNN", FILES["cudnn"], PACKAGES["cudnn"], "cudnnGetErrorString")


class _Handle:
    """A handle, which works on one stream at a time."""

    def __init__(self) -> None:
        self.value = _library().created("cudnnCreate")
        self.lock = threading.Lock()


@cache
def _handles() -> PerDevice:
    return PerDevice(_Handle)


class Cudnn:
    """Computes one convolution; the last output is the memory that cuDNN may work in."""

    def __init__(self, convolution: Convolution) -> None:
        self._convolution = convolution
        self._library = _library()
        self._x = self._tensor(convolution.x)
        self._y = self._tensor(convolution.y)
        self._w = self._filter()
        self._description = self._describe()
        if convolution.bias is not None:
            self._bias = self._tensor([1, convolution.y[1], 1, 1])
        self._activation = self._activate()
        self._one, self._zero = ctypes.c_float(1), ctypes.c_float(0)
        self._chosen: dict[int, _Performance] = {}

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        result, workspace = outputs
        handle = _handles().of(result)
        with handle.lock:
            self._library.call("cudnnSetStream", handle.value, stream(result))
            chosen = self._algorithm(handle.value, result, int(workspace.shape[0]))
            if self._math() != _FMA_MATH:
                self._library.call("cudnnSetConvolutionMathType", self._description, chosen.math)
            self._run(handle.value, chosen, inputs, result, workspace)

    def _run(
        self, handle: Any, chosen: _Performance, inputs: Sequence[Any], result: Any, workspace: Any
    ) -> None:
        x, w = (pointer(inputs[at]) for at in self._convolution.at)
        one, zero, y = ctypes.byref(self._one), ctypes.byref(self._zero), pointer(result)
        work = (pointer(workspace), ctypes.c_size_t(int(workspace.shape[0])))
        operands = (self._x, x, self._w, w, self._description, chosen.algorithm, *work)
        arguments = [handle, one, *operands, zero, self._y, y]
        name = "cudnnConvolutionForward"
        if self._convolution.bias is not None:
            bias = pointer(inputs[self._convolution.bias])
            arguments += [self._bias, bias, self._activation, self._y, y]
            name = "cudnnConvolutionBiasActivationForward"
        self._library.call(name, *arguments)

    def _tensor(self, shape: Sequence[int]) -> ctypes.c_void_p:
        convolution = self._convolution
        made = self._library.created("cudnnCreateTensorDescriptor")
        kind = (_FORMATS[convolution.layout], _TYPES[convolution.dtype])
        self._library.call("cudnnSetTensor4dDescriptor", made, *kind, *shape)
        return made

    def _filter(self) -> ctypes.c_void_p:
        convolution = self._convolution
        made = self._library.created("cudnnCreateFilterDescriptor")
        kind = (_TYPES[convolution.dtype], _FORMATS[convolution.layout])
        self._library.call("cudnnSetFilter4dDescriptor", made, *kind, *convolution.w)
        return made

    def _describe(self) -> ctypes.c_void_p:
        convolution = self._convolution
        made = self._library.created("cudnnCreateConvolutionDescriptor")
        numbers = (*convolution.padding, *convolution.strides, *convolution.dilation)
        kind = (_CROSS_CORRELATION, _FLOAT)
        self._library.call("cudnnSetConvolution2dDescriptor", made, *numbers, *kind)
        self._library.call("cudnnSetConvolutionGroupCount", made, convolution.groups)
        self._library.call("cudnnSetConvolutionMathType", made, self._math())
        return made

    def _math(self) -> int:
        """float32 keeps its bits unless TF32 is asked for."""
        exact = self._convolution.dtype == "float32" and not self._convolution.tf32
        return _FMA_MATH if exact else _DEFAULT_MATH

    def _activate(self) -> ctypes.c_void_p:
        made = self._library.created("cudnnCreateActivationDescriptor")
        mode = _RELU if self._convolution.relu else _IDENTITY
        propagate_nan, ceiling = 1, ctypes.c_double(0)
        self._library.call("cudnnSetActivationDescriptor", made, mode, propagate_nan, ceiling)
        return made

    def _algorithm(self, handle: Any, result: Any, size: int) -> _Performance:
        """The fastest, as cuDNN estimates, of those that the workspace is enough for."""
        index = int(result.device.index)
        if index in self._chosen:
            return self._chosen[index]
        found, count = (_Performance * _ALGORITHMS)(), ctypes.c_int()
        self._library.call(
            "cudnnGetConvolutionForwardAlgorithm_v7",
            *(handle, self._x, self._w, self._description, self._y),
            *(_ALGORITHMS, ctypes.byref(count), found),
        )
        for each in found[: count.value]:
            if each.status == 0 and each.memory <= size and self._may_use(each):
                self._chosen[index] = each
                return each
        raise LoadError(
            f"cuDNN has no algorithm on this GPU in {size} bytes for {self._convolution}"
        )

    def _may_use(self, performance: _Performance) -> bool:
        convolution = self._convolution
        if self._math() == _FMA_MATH and performance.math in _TENSOR_CORES:
            return False
        bias_alone = convolution.bias is not None and not convolution.relu
        return not bias_alone or performance.algorithm == _PRECOMPUTED_GEMM


def load(code: bytes) -> Cudnn:
    """Engine of a convolution that is described in JSON."""
    return Cudnn(Convolution(**json.loads(code.decode())))
