"""Candidate kernels, build results and run options."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from schedules.config import InstantiationError

if TYPE_CHECKING:
    import numpy as np
    import tvm
    from tvm.target import Target

__all__ = [
    "ArgInfo",
    "BuildResult",
    "Candidate",
    "InstantiationError",
    "Lowered",
    "MeasureErrorNo",
    "Reference",
]

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


@dataclass(frozen=True)
class Lowered:
    """A scheduled kernel, ready for code generation.

    Attributes
    ----------
    mod : tvm.IRModule
        Its function "main" is the kernel.
    target : Target
    args : tuple of ArgInfo
        Arguments of the kernel: inputs first, then outputs.
    """

    mod: tvm.IRModule
    target: Target
    args: tuple[ArgInfo, ...]


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
        """Lower the kernel; runs in a worker process.

        Raises
        ------
        InstantiationError
            The schedule is invalid. Any other exception counts as this one.
        """
        ...

    def reference(self) -> Reference | None:
        """Reference results, or None to skip the comparison; runs in a worker process."""
        ...


class BuildResult(NamedTuple):
    """Outcome of building a candidate.

    Attributes
    ----------
    path : str
        The library; empty if building failed. The caller deletes it.
    args : tuple of ArgInfo
    error_no : MeasureErrorNo
    message : str
        Why building failed, one line.
    seconds : float
        Build time.
    """

    path: str
    args: tuple[ArgInfo, ...]
    error_no: MeasureErrorNo
    message: str
    seconds: float


@dataclass(frozen=True)
class RunOptions:
    """How a kernel is timed.

    Attributes
    ----------
    number : int
        Runs that one repeat averages.
    repeat : int
        With more than two, the fastest and the slowest are dropped.
    min_repeat_ms : int
        `number` grows until a repeat takes this long.
    enable_cpu_cache_flush : bool
        Empty the caches before each repeat; for `number` 1.
    check_correctness : bool
        Compare the results with the candidate's reference.
    tolerance : float
        Largest relative error of a right result.
    constant_bytes : int
        Bytes of constants that the network's inference reads. A kernel's own are then read from
        as many copies in turn, so that they come from as far as in the network. On this
        machine's CPU alone; 0 reads the same ones each time.
    """

    number: int = 4
    repeat: int = 3
    min_repeat_ms: int = 0
    enable_cpu_cache_flush: bool = False
    check_correctness: bool = False
    tolerance: float = 1e-3
    constant_bytes: int = 0
