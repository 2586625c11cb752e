"""Trace of a library run: kernels in order, their times and the tensors they wrote."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi

TRACE_KERNELS = "baton.debugger.trace_kernels"
"""Global function that RPC clients call; servers with Baton have it."""
CREATE_VIEW = "runtime.TVMTensorCreateView"
"""TVM's function that makes a tensor of a part of another."""
MOVE_POINTER = "baton_move_view_pointer"
"""Kernel that makes a new view one that kernels take; see `codegen.concat_in_place`."""


@dataclass
class KernelCall:
    """One call of a kernel in a run."""

    symbol: str  # the kernel's name in the library
    inputs: int = 0  # how many tensors it reads
    # Copies of what it wrote; empty in a run that was only timed
    outputs: list[Any] = field(default_factory=list)
    seconds: float = 0.0


class Tracer:
    """An instrument of the virtual machine that records the kernels of one run after another.

    The code generator passes results as arguments, the last ones: those tensors that no earlier
    call of the run had and that the caller did not give. A tensor whose parts were written through
    views, one after the other, is not a result either.
    """

    def __init__(self, devices: Sequence[Any]) -> None:
        self._accelerators = [device for device in devices if device.type != "cpu"]
        self.start(frozenset())

    def start(self, given: frozenset[int], keep: bool = False) -> None:
        """Begin a new recording.

        `given`: handles of inputs and weights, which no kernel writes. `keep`: whether to copy what
        the kernels write.
        """
        self.calls: list[KernelCall] = []
        self._keep = keep
        self._known = set(given)
        self._views: dict[int, tuple[int, int]] = {}
        self._written: dict[int, list[tuple[int, int]]] = {}
        self._alive: list[Any] = []
        self._began = 0.0

    def __call__(self, _: Any, symbol: str, before: bool, result: Any, *arguments: Any) -> int:
        tensors = [value for value in arguments if isinstance(value, tvm.runtime.Tensor)]
        if symbol.startswith("vm."):
            if tensors and isinstance(result, tvm.runtime.Tensor):  # a view of what is there
                self._remember([result])
            return 0
        if symbol == CREATE_VIEW and not before and self._keep:
            self._alive += [*tensors, result]
            self._views[result.__chandle__()] = (tensors[0].__chandle__(), int(arguments[-1]))
        if not tensors or symbol in (CREATE_VIEW, MOVE_POINTER):
            return 0
        if before:
            self._began = time.perf_counter()
            return 0
        for device in self._accelerators:
            device.sync()
        call = KernelCall(symbol, seconds=time.perf_counter() - self._began)
        if self._keep:
            written = [tensor for tensor in tensors if not self._has_value(tensor)]
            for tensor in written:
                whole, start, size = self._place(tensor)
                self._written.setdefault(whole, []).append((start, size))
            call.inputs = len(tensors) - len(written)
            self._remember(written)
            call.outputs = [tensor.copyto(tvm.cpu()) for tensor in written]
        self.calls.append(call)
        return 0

    def _has_value(self, tensor: Any) -> bool:
        if tensor.__chandle__() in self._known:
            return True
        whole, start, size = self._place(tensor)
        parts = self._written.get(whole, [])
        return 0 < size == sum(n for at, n in parts if start <= at and at + n <= start + size)

    def _place(self, tensor: Any) -> tuple[int, int, int]:
        """Handle of the tensor that a tensor is a part of, and its first byte and bytes there."""
        handle = tensor.__chandle__()
        whole, start = self._views.get(handle, (handle, 0))
        return whole, start, math.prod(tensor.shape) * tvm.DataType(str(tensor.dtype)).itemsize

    def _remember(self, tensors: Sequence[Any]) -> None:
        """A handle is a tensor's name only while the tensor lives."""
        if self._keep:
            self._alive += tensors
            self._known.update(tensor.__chandle__() for tensor in tensors)


@tvm_ffi.register_global_func(TRACE_KERNELS, override=True)
def _trace_kernels(machine: Any, *devices: str) -> Callable[[], str]:
    """Trace a virtual machine of this process; the result reads and clears its calls, as JSON."""
    tracer = Tracer([tvm.device(device) for device in devices])
    machine["set_instrument"](tracer)

    def read_calls() -> str:
        calls = json.dumps([[call.symbol, call.seconds] for call in tracer.calls])
        tracer.start(frozenset())
        return calls

    return read_calls


def start_server(*arguments: Any) -> Any:
    """Start an RPC server in a worker process, which has TRACE_KERNELS by importing this module."""
    return tvm.rpc.server._popen_start_rpc_server(*arguments)
