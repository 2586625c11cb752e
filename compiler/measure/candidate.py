"""Candidate kernels, build results and run options."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from schedules.config import InstantiationError as InstantiationError

if TYPE_CHECKING:
    import numpy as np
    import tvm
    from tvm.target import Target


FAILED_COST = 1e9
"""Seconds that the record of a failed measurement carries, as in TVM's logs."""


class MeasureErrorNo(enum.IntEnum):
    """Why a measurement failed; the numbers are those of TVM's tuning logs."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


class ArgInfo(NamedTuple):
    """Shape and dtype of one argument of a kernel."""

    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, tensor: Any) -> ArgInfo:
        """Those of a parameter, or of anything else with a shape and a dtype."""
        return cls(tuple(map(int, tensor.shape)), str(tensor.dtype))


@dataclass(frozen=True)
class Lowered:
    """A scheduled kernel, ready for code generation."""

    mod: tvm.IRModule  # its function "main" is the kernel
    target: Target
    args: tuple[ArgInfo, ...]  # arguments of the kernel: inputs first, then outputs


class Reference(Protocol):
    """The right result of a candidate's kernel on given arguments."""

    def arguments(self) -> Sequence[np.ndarray]:
        """Values of all the kernel's arguments; outputs too, with any content."""
        ...

    def relative_error(self, arguments: Sequence[np.ndarray]) -> float:
        """Largest error of the outputs among the arguments after a run, relative to their
        magnitude."""
        ...


class Candidate(Protocol):
    """One schedule of one kernel. Instances are sent to worker processes by pickling."""

    @property
    def modules(self) -> Sequence[str]:
        """This package's modules that `lower` and `reference` need: workers import them once."""
        ...

    @property
    def device(self) -> str:
        """Kind of device it runs on: "cpu", "cuda", ..."""
        ...

    def lower(self) -> Lowered:
        """Lower in a worker process; any exception counts as an InstantiationError."""
        ...

    def reference(self) -> Reference | None:
        """Reference results, or None to skip the comparison; runs in a worker process."""
        ...


class BuildResult(NamedTuple):
    """Outcome of building a candidate."""

    path: str  # the library; empty if building failed. The caller deletes it.
    args: tuple[ArgInfo, ...]
    error_no: MeasureErrorNo
    message: str  # why building failed, one line
    seconds: float  # build time


@dataclass(frozen=True)
class RunOptions:
    """How a kernel is timed."""

    number: int = 4  # runs that one repeat averages
    repeat: int = 3  # with more than two, the fastest and the slowest are dropped
    min_repeat_ms: int = 0  # `number` grows until a repeat takes this long
    enable_cpu_cache_flush: bool = False  # empty the caches before each repeat; for `number` 1
    check_correctness: bool = False  # compare the results with the candidate's reference
    tolerance: float = 1e-3  # largest relative error of a right result
    # Bytes of constants that the network's inference reads. A kernel's own are then read from as
    # many copies in turn, so that they come from as far as in the network. On this machine's CPU
    # alone; 0 reads the same ones each time.
    constant_bytes: int = 0
