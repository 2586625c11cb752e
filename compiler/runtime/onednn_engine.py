"""oneDNN as the runtime of external subgraphs, through the C API of its graph extension.

oneDNN fuses the operators of a subgraph into partitions, chooses the layouts between them and keeps
packed weights. It computes float32 in float32. Inputs and outputs are the caller's tensors, without
copies. oneDNN has no kernels for reshapes and transposes: they are strides of one memory, and a
reshape of a transposed tensor is copied. The library is `libdnnl.so.3`, 3.1 or newer, of the
package `onednn-cpu-gomp` or of the system.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np

from compiler.errors import BuildError, LoadError

PACKAGE = "onednn-cpu-gomp"
_NAME = "libdnnl.so.3"
# Codes of oneDNN's C headers. Later versions of oneDNN append to these lists.
_KINDS = {
    **{"Abs": 0, "Add": 2, "AvgPool": 3, "BatchNormInference": 7, "Clamp": 10, "Concat": 12},
    **{"Convolution": 13, "ConvTranspose": 16, "Divide": 20, "End": 25, "Exp": 26, "GELU": 27},
    **{"LayerNorm": 33, "LeakyReLU": 35, "Log": 36, "LogSoftmax": 37, "MatMul": 39},
    **{"Maximum": 40, "MaxPool": 41, "Minimum": 43, "Multiply": 46, "ReduceMax": 53},
    **{"ReduceMean": 54, "ReduceMin": 55, "ReduceSum": 57, "ReLU": 58, "Sigmoid": 62},
    **{"SoftMax": 64, "Sqrt": 68, "Subtract": 74, "Tanh": 75, "Wildcard": 78},
}
_MOVES = ("Reshape", "Transpose")  # done here; to oneDNN they are wildcards
_ATTRIBUTES = {
    **{"alpha": 0x1, "epsilon": 0x3, "max": 0x4, "min": 0x5, "axis": 0x30},
    **{"begin_norm_axis": 0x31, "groups": 0x32, "axes": 0x40, "dilations": 0x41, "kernel": 0x43},
    **{"output_padding": 0x45, "pads_begin": 0x46, "pads_end": 0x47, "strides": 0x4B},
    **{"exclude_pad": 0x60, "keep_dims": 0x61, "keep_stats": 0x62, "data_format": 0x83},
    **{"rounding_type": 0x86, "weights_format": 0x87},
}
_FLOAT32, _CPU, _IN_ORDER, _ANY_LAYOUT = 3, 1, 1, 1
_VARIABLE, _CONSTANT = 1, 2
_MOST_DIMENSIONS = 12


class _Logical(ctypes.Structure):
    """A `dnnl_graph_logical_tensor_t`: the type and layout of a tensor."""

    _fields_ = (
        ("id", ctypes.c_size_t),
        ("ndims", ctypes.c_int),
        ("dims", ctypes.c_int64 * _MOST_DIMENSIONS),
        ("data_type", ctypes.c_int),
        ("property", ctypes.c_int),
        ("layout_type", ctypes.c_int),
        ("strides", ctypes.c_int64 * _MOST_DIMENSIONS),
    )


@cache
def _library() -> ctypes.CDLL:
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    for path in (*(str(each.locate()) for each in files if each.name == _NAME), _NAME):
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        if hasattr(library, "dnnl_graph_graph_create"):
            library.dnnl_graph_set_constant_tensor_cache(1)  # keeps packed weights
            return library
    raise LoadError(
        f"a subgraph runs in oneDNN 3.1 or newer, which is not installed: pip install {PACKAGE}"
    )


def _call(name: str, *arguments: Any) -> None:
    """Call a function of the C API; raises LoadError if it fails."""
    status = getattr(_library(), f"dnnl_{name}")(*arguments)
    if status:
        raise LoadError(f"oneDNN can't run a subgraph: dnnl_{name} returned status {status}")


def _created(name: str, *arguments: Any) -> ctypes.c_void_p:
    """The handle that a function of the C API creates."""
    handle = ctypes.c_void_p()
    _call(name, ctypes.byref(handle), *arguments)
    return handle


def _count(name: str, handle: ctypes.c_void_p) -> int:
    number = ctypes.c_size_t()
    _call(name, handle, ctypes.byref(number))
    return number.value


def load(header: Mapping[str, Any], data: bytes) -> Callable[[Sequence[Any], Sequence[Any]], None]:
    """Compile a subgraph of the back end `onednn`.

    `header`: the result of `compiler.backends.onednn.describe`, and the number of `threads`; if it
    is 0, `TVM_NUM_THREADS` if that is set, else what OpenMP chooses. `data`: float32 constants.
    Raises LoadError: oneDNN is not installed or rejects the subgraph, or the code is damaged.
    """
    _library()
    try:
        return _Subgraph(header, np.frombuffer(data, "uint8")).run
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise LoadError("the code of a subgraph for oneDNN is damaged; build again") from error


@dataclass(frozen=True)
class _Partition:
    """Operators that oneDNN compiled as one, and the numbers of the tensors that they touch."""

    handle: ctypes.c_void_p
    inputs: list[int]
    outputs: list[int]


@dataclass(frozen=True)
class _Copy:
    """A tensor that is a copy of strided memory of another one."""

    source: int  # whose memory is read
    shape: tuple[int, ...]
    strides: list[int]  # in elements
    result: int


class _Subgraph:
    """Compiled partitions and copies of a subgraph, in the order in which they run."""

    def __init__(self, header: Mapping[str, Any], weights: np.ndarray) -> None:
        self._weights = weights
        self._inputs = [int(number) for number in header["inputs"]]
        self._outputs = [int(number) for number in header["outputs"]]
        self._shapes = [tuple(map(int, shape)) for shape, _ in header["tensors"]]
        self._offsets = [offset for _, offset in header["tensors"]]
        for shape, offset in zip(self._shapes, self._offsets):
            size = 4 * math.prod(shape)
            if min(shape) < 1 or len(shape) > _MOST_DIMENSIONS:
                raise ValueError(f"shape {shape}")
            if offset is not None and not 0 <= offset <= weights.size - size:
                raise ValueError(f"offset {offset}")
        used = [n for _, inputs, outputs, _ in header["operators"] for n in (*inputs, *outputs)]
        if not {*used, *self._inputs, *self._outputs} <= {*range(len(self._shapes))}:
            raise ValueError("numbers of tensors")
        # By number: whose memory a tensor has, and its strides in elements.
        self._roots = list(range(len(self._shapes)))
        self._strides = [_compact(shape) for shape in self._shapes]
        self._copies: dict[int, _Copy] = {}  # of reshapes and transposes, by result
        for kind, inputs, outputs, attributes in header["operators"]:
            if kind in _MOVES:
                self._move(kind, inputs[0], outputs[0], attributes)
        self._engine = _created("engine_create", _CPU, ctypes.c_size_t(0))
        self._logical = [self._new_logical(number) for number in range(len(self._shapes))]
        threads = header.get("threads") or os.environ.get("TVM_NUM_THREADS", "")
        self._threads = int(threads) if str(threads).isdecimal() else 0
        self._set_threads()  # kernels are generated for them
        self._steps = self._compiled(header["operators"])
        self._local = threading.local()

    def _move(self, kind: str, source: int, result: int, attributes: Mapping[str, Any]) -> None:
        shape, strides = self._shapes[source], self._strides[source]
        compact = strides == _compact(shape)
        if kind == "Transpose":
            order = attributes["order"]
            if sorted(order) != [*range(len(shape))]:
                raise ValueError(f"order {order}")
            shape, strides = tuple(shape[axis] for axis in order), [strides[axis] for axis in order]
        elif compact:
            shape, strides = self._shapes[result], _compact(self._shapes[result])
        if math.prod(shape) != math.prod(self._shapes[source]):
            raise ValueError(f"a move of {self._shapes[source]} to {shape}")
        self._copies[result] = _Copy(self._roots[source], shape, strides, result)
        if result not in self._outputs and shape == self._shapes[result]:
            self._roots[result], self._strides[result] = self._roots[source], strides

    def _new_logical(self, number: int) -> _Logical:
        shape = self._shapes[number]
        logical = _Logical(number, len(shape), data_type=_FLOAT32, layout_type=_ANY_LAYOUT)
        logical.property = _VARIABLE if self._offsets[number] is None else _CONSTANT
        logical.dims[: len(shape)] = shape
        moved = {n for each in self._copies.values() for n in (each.source, each.result)}
        if number in moved.union(self._inputs, self._outputs) or self._offsets[number] is not None:
            logical.layout_type = _ANY_LAYOUT + 1  # strided
            logical.strides[: len(shape)] = self._strides[number]
        return logical

    def _set_threads(self) -> None:
        if self._threads and hasattr(_library(), "omp_set_num_threads"):  # else not OpenMP's
            _library().omp_set_num_threads(self._threads)

    def _compiled(self, operators: Sequence[Any]) -> list[_Partition | _Copy]:
        graph = _created("graph_graph_create", _CPU)
        ends: list[Any] = [("End", [number], [], {}) for number in self._outputs]
        for index, (kind, inputs, outputs, attributes) in enumerate([*operators, *ends]):
            if kind in _MOVES:
                kind, attributes = "Wildcard", {}
            self._add(graph, (index, kind, attributes), inputs, outputs)
        _call("graph_graph_finalize", graph)
        _call("graph_graph_filter", graph, 1)  # fuse
        handles = (ctypes.c_void_p * _count("graph_graph_get_partition_num", graph))()
        _call("graph_graph_get_partitions", graph, ctypes.c_size_t(len(handles)), handles)
        waiting = [ctypes.c_void_p(handle) for handle in handles]
        computed = {*self._inputs} | {n for n, at in enumerate(self._offsets) if at is not None}
        steps: list[_Partition | _Copy] = []
        while waiting:
            for handle in waiting:
                inputs = self._ports("input", handle)
                if computed.issuperset(inputs):
                    break
            else:
                raise LoadError("oneDNN left operators of a subgraph without their inputs")
            waiting.remove(handle)
            outputs = self._ports("output", handle)
            computed.update(outputs)
            if outputs and outputs[0] not in self._copies:
                steps.append(self._compile(handle, inputs, outputs, operators))
            elif outputs and self._roots[outputs[0]] == outputs[0]:
                steps.append(self._copies[outputs[0]])
        return steps

    def _add(
        self,
        graph: ctypes.c_void_p,
        operator: tuple[int, str, Mapping[str, Any]],
        inputs: Sequence[int],
        outputs: Sequence[int],
    ) -> None:
        index, kind, attributes = operator
        op = _created("graph_op_create", ctypes.c_size_t(index), _KINDS[kind], kind.encode())
        for key, value in attributes.items():
            many = value if isinstance(value, list) else [value]
            given: Any
            if isinstance(value, str):
                suffix, given = "str", value.encode()
                many = [*given]
            elif isinstance(value, bool):
                suffix, given = "bool", ctypes.byref(ctypes.c_uint8(value))
            elif isinstance(value, float):
                suffix, given = "f32", ctypes.byref(ctypes.c_float(value))
            else:
                suffix, given = "s64", (ctypes.c_int64 * len(many))(*many)
            setting = _ATTRIBUTES[key], given, ctypes.c_size_t(len(many))
            _call(f"graph_op_set_attr_{suffix}", op, *setting)
        for number in inputs:
            _call("graph_op_add_input", op, ctypes.byref(self._logical[number]))
        for number in outputs:
            _call("graph_op_add_output", op, ctypes.byref(self._logical[number]))
        _call("graph_add_op", graph, op)
        _call("graph_op_destroy", op)

    def _ports(self, side: str, partition: ctypes.c_void_p) -> list[int]:
        """Numbers of the tensors that a partition reads or writes."""
        found = (_Logical * _count(f"graph_partition_get_{side}_ports_num", partition))()
        size = ctypes.c_size_t(len(found))
        _call(f"graph_partition_get_{side}_ports", partition, size, found)
        return [int(each.id) for each in found]

    def _compile(
        self,
        partition: ctypes.c_void_p,
        inputs: list[int],
        outputs: list[int],
        operators: Sequence[Any],
    ) -> _Partition:
        supported = ctypes.c_uint8()
        _call("graph_partition_is_supported", partition, ctypes.byref(supported))
        if not supported.value:
            kinds = {kind for kind, _, written, _ in operators if {*written} & {*outputs}}
            raise LoadError(f"oneDNN has no kernel for {', '.join(sorted(kinds))}")
        handle = _created("graph_compiled_partition_create", partition)
        sides: list[Any] = []
        for numbers in (inputs, outputs):
            pointers = [ctypes.pointer(self._logical[number]) for number in numbers]
            array = (ctypes.POINTER(_Logical) * len(numbers))(*pointers)
            sides += [ctypes.c_size_t(len(numbers)), array]
        _call("graph_partition_compile", partition, handle, *sides, self._engine)
        query = "graph_compiled_partition_query_logical_tensor"
        for number in outputs:  # the layout that oneDNN chose
            logical = ctypes.byref(self._logical[number])
            _call(query, handle, ctypes.c_size_t(number), logical)
        return _Partition(handle, inputs, outputs)

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Compute the outputs in place; each thread has its own stream and buffers."""
        if not hasattr(self._local, "thread"):
            self._local.thread = _Thread(self, self._engine)
        thread: _Thread = self._local.thread
        for number, tensor in zip([*self._inputs, *self._outputs], [*inputs, *outputs]):
            array = np.from_dlpack(tensor)
            if (array.shape or (1,)) != self._shapes[number] or not array.flags.c_contiguous:
                raise BuildError(
                    f"a subgraph in oneDNN got a tensor of shape {array.shape}; a compact one of "
                    f"shape {self._shapes[number]} was promised"
                )
            thread.set_memory(number, array)
        thread.run()


def _compact(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


class _Thread:
    """State of one thread: a stream, tensors by number, and memory by the number of the root."""

    def __init__(self, subgraph: _Subgraph, engine: ctypes.c_void_p) -> None:
        self._of = subgraph
        subgraph._set_threads()
        self._stream = _created("stream_create", engine, _IN_ORDER)
        self._memory: dict[int, np.ndarray] = {}
        self._tensors: dict[int, list[ctypes.c_void_p]] = {}  # by number of the root
        handles: dict[int, ctypes.c_void_p] = {}
        partitions = [step for step in subgraph._steps if isinstance(step, _Partition)]
        for number in {n for each in partitions for n in (*each.inputs, *each.outputs)}:
            logical = ctypes.byref(subgraph._logical[number])
            handles[number] = _created("graph_tensor_create", logical, engine, None)
            self._tensors.setdefault(subgraph._roots[number], []).append(handles[number])
        copies = [step for step in subgraph._steps if isinstance(step, _Copy)]
        copied = {number for each in copies for number in (each.source, each.result)}
        for root in copied.union(self._tensors):
            self._allocate(root)
        self._calls: list[Any] = []
        for step in subgraph._steps:
            if isinstance(step, _Copy):
                self._calls.append(step)
                continue
            sides: list[Any] = []
            for numbers in (step.inputs, step.outputs):
                values = (ctypes.c_void_p * len(numbers))(*(handles[n].value for n in numbers))
                sides += [ctypes.c_size_t(len(numbers)), values]
            self._calls.append((step.handle, self._stream, *sides))

    def _allocate(self, root: int) -> None:
        of = self._of
        offset, shape = of._offsets[root], of._shapes[root]
        if offset is not None:
            data = of._weights[offset : offset + 4 * math.prod(shape)].view("float32")
            self.set_memory(root, data.reshape(shape))
        elif root not in (*of._inputs, *of._outputs):
            size = ctypes.c_size_t()
            logical = ctypes.byref(of._logical[root])
            _call("graph_logical_tensor_get_mem_size", logical, ctypes.byref(size))
            room = np.empty(size.value // 4 + 16, "float32")
            start = -room.ctypes.data % 64 // 4
            self.set_memory(root, room[start : start + size.value // 4])

    def set_memory(self, root: int, array: np.ndarray) -> None:
        """Use the memory of an array, which is kept, for a tensor and its views."""
        self._memory[root] = array
        for handle in self._tensors.get(root, ()):
            _call("graph_tensor_set_data_handle", handle, ctypes.c_void_p(array.ctypes.data))

    def run(self) -> None:
        """Execute the partitions and copies."""
        for call in self._calls:
            if isinstance(call, _Copy):
                strides = [4 * stride for stride in call.strides]
                memory = self._memory[call.source]
                source = np.lib.stride_tricks.as_strided(memory, call.shape, strides)
                np.copyto(self._memory[call.result].reshape(call.shape), source)
            else:
                _call("graph_compiled_partition_execute", *call)
        _call("stream_wait", self._stream)
