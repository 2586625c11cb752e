"""What a run of a library did: its kernels in order, their times and the tensors they wrote."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm


@dataclass
class KernelCall:
    """One call of a kernel in a run.

    Attributes
    ----------
    symbol : str
        The kernel's name in the library.
    inputs : int
        How many tensors it reads.
    outputs : list of tvm.runtime.Tensor
        Copies of what it wrote; empty in a run that was only timed.
    seconds : float
    """

    symbol: str
    inputs: int = 0
    outputs: list[Any] = field(default_factory=list)
    seconds: float = 0.0


class Tracer:
    """An instrument of the virtual machine that records the kernels of one run after another.

    The code generator passes results as arguments, the last ones: those tensors that no earlier
    call of the run had and that the caller did not give.
    """

    def __init__(self, devices: Sequence[Any]) -> None:
        self._accelerators = [device for device in devices if device.type != "cpu"]
        self.start(frozenset())

    def start(self, given: frozenset[int], keep: bool = False) -> None:
        """Begin a new recording.

        Parameters
        ----------
        given : frozenset of int
            Handles of inputs and weights, which no kernel writes.
        keep : bool
            Whether to copy what the kernels write.
        """
        self.calls: list[KernelCall] = []
        self._keep = keep
        self._known = set(given)
        self._alive: list[Any] = []
        self._began = 0.0

    def __call__(self, _: Any, symbol: str, before: bool, result: Any, *arguments: Any) -> int:
        tensors = [value for value in arguments if isinstance(value, tvm.runtime.Tensor)]
        if symbol.startswith("vm."):
            if tensors and isinstance(result, tvm.runtime.Tensor):  # a view of what is there
                self._remember([result])
            return 0
        if not tensors:
            return 0
        if before:
            self._began = time.perf_counter()
            return 0
        for device in self._accelerators:
            device.sync()
        call = KernelCall(symbol, seconds=time.perf_counter() - self._began)
        if self._keep:
            written = [tensor for tensor in tensors if tensor.__chandle__() not in self._known]
            call.inputs = len(tensors) - len(written)
            self._remember(written)
            call.outputs = [tensor.copyto(tvm.cpu()) for tensor in written]
        self.calls.append(call)
        return 0

    def _remember(self, tensors: Sequence[Any]) -> None:
        """A handle is a tensor's name only while the tensor lives."""
        if self._keep:
            self._alive += tensors
            self._known.update(tensor.__chandle__() for tensor in tensors)
