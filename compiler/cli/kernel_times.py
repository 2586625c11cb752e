"""Where the time of an inference goes: what `baton profile` measures, and others show."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler.lowering.report import Report
    from compiler.runtime import FactoryModule

RUNTIME = "runtime"
"""Name under which everything that is no kernel is counted: memory, shapes, copies."""


@dataclass(frozen=True)
class KernelTime:
    """One kernel's part of an inference.

    Attributes
    ----------
    name, operators, implementation, source
        As in the build's report.
    shapes : list of str
        Shapes of its operands, then of its results: "1x4x56x56x16".
    calls : int
        Calls in one inference.
    milliseconds : float
        Of all its calls in one inference; the median over the inferences.
    share : float
        Of the time of all kernels and the runtime, 0 to 1.
    gflops : float or None
        10^9 floating-point operations per second; None where they are unknown.
    gbytes : float
        10^9 bytes of operands and results per second; 0 where the report has no count.
    operands, instruction : str
        What it multiplies, and with which instruction, as in the build's report.
    """

    name: str
    operators: list[str]
    implementation: str
    source: str
    shapes: list[str]
    calls: int
    milliseconds: float
    share: float
    gflops: float | None
    gbytes: float
    operands: str = ""
    instruction: str = ""


@dataclass(frozen=True)
class Profile:
    """Where the time of an inference goes, the slowest kernel first.

    Attributes
    ----------
    milliseconds : float
        Median time of an inference without measuring its kernels.
    repeats : int
        Inferences whose kernels were measured.
    """

    model: str
    target: str
    milliseconds: float
    repeats: int
    kernels: list[KernelTime]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return asdict(self)


def gflops_of(kernel: KernelTime) -> str:
    """10^9 floating-point operations per second, for tables; nothing where there are none."""
    if kernel.gflops is None:
        return "unknown"
    return f"{kernel.gflops:.1f}" if kernel.gflops else ""


def report_of(library: FactoryModule) -> Report:
    """The report of a library's build, also of one that was loaded."""
    from compiler.lowering.report import Report

    report = library.report
    return report if isinstance(report, Report) else Report.from_json(report)
