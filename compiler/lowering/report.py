"""Build report: one entry per kernel, as a printable table and as JSON."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


def names_in_short(names: Sequence[str]) -> str:
    """The first two names, and how many more there are."""
    return " ".join(names[:2]) + (f" +{len(names) - 2}" if len(names) > 2 else "")


@dataclass
class Kernel:
    """One compiled kernel.

    Attributes
    ----------
    name : str
        Symbol in the library.
    operators : list of str
        Operators fused into it, in order, under Relay's names; Relax's or the kernel's own for
        what Relay has no operator for.
    implementation : str
        The implementation or schedule rule; "unscheduled" where no rule took it.
    source : str
        "topi:fallback", "topi:<log>:<line>", "auto_scheduler:<log>:<line>", or "none".
    backend : str
        Partitioner that selected it; empty for the main graph.
    calls : int
        How often one inference calls it.
    flops : int or None
        Floating-point operations of one call; None where they are unknown.
    bytes : int
        Size of all operands and results of one call.
    algorithm : str
        "direct", "strassen", or Winograd's with its tile, such as "winograd F(4x4,3x3)".
    config : str
        Values of the knobs of a TOPI schedule, as AutoTVM's logs write them: JSON.
    operands : str
        Element types that a convolution or product multiplies: "float32", "uint8 x int8".
    instruction : str
        With which it does: "vfmadd", "vdpbf16ps", "vpdpbusd"; empty where that is not known.
    nodes : list of str
        The model's own names of the nodes that it computes, of all its calls; empty where the
        importer knows none.
    remark : str
        Times of a kernel whose record won although the build without it is faster here.
    """

    name: str
    operators: list[str]
    implementation: str
    source: str
    target: str
    backend: str = ""
    calls: int = 1
    flops: int | None = None
    bytes: int = 0
    algorithm: str = "direct"
    remark: str = ""
    config: str = ""
    operands: str = ""
    instruction: str = ""
    nodes: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        """Names of the model's nodes, for tables."""
        return names_in_short(self.nodes)

    @property
    def multiplies(self) -> str:
        """Element types and instruction, for tables."""
        return f"{self.operands} {self.instruction}".strip()

    @property
    def megaflops(self) -> str:
        """Millions of floating-point operations of one call, for tables."""
        return "unknown" if self.flops is None else f"{self.flops / 1e6:.2f}"


@dataclass
class LogUse:
    """How far a build used one tuning log.

    Attributes
    ----------
    log : str
        Name of the log, without its folder.
    kind : str
        "topi" for an AutoTVM log, "auto_scheduler" for others.
    records : int
        All its records, failed measurements included.
    for_target : int
        Successful ones for the build's target.
    matching : int
        Of these, the best ones of kernels of the build: those that it looked at.
    used : int
        Of these, the ones that kernels of the library are made from.
    skipped : list of str
        "line: reason" of each matching record that is not used.
    """

    log: str
    kind: str
    records: int
    for_target: int
    matching: int
    used: int
    skipped: list[str] = field(default_factory=list)


_ERRORS_FOLLOW = {
    "winograd": "of a tile of the image (Winograd)",
    "strassen": "of two rows (Strassen)",
}
_ROUNDED = {
    "bf16": "factors of products to bfloat16, where the CPU multiplies it",
    "f16": "weights of products that wait for memory to float16",
    "tf32": "factors of products to TF32",
}


def _origin(kernel: Kernel) -> str:
    backend = f" [{kernel.backend}]" if kernel.backend else ""
    remark = f" (slower here: {kernel.remark})" if kernel.remark else ""
    return kernel.source + backend + remark


@dataclass
class Report:
    """The kernels of one library, and the origin of their schedules.

    Attributes
    ----------
    target : str
    use_topi_schedule : bool
    opt_level : int
    kernels : list of Kernel
    seconds : dict of str to float
        Wall time of each step of the build.
    cache : str
        What was found on disk: "the library", or how many of its kernels.
    weights_bytes : int
        Of all packed parameters that the library holds.
    activations_bytes : int
        Of the storage that one inference takes for its intermediate tensors and results; what a
        kernel takes while it runs is not counted.
    unknown_activations : int
        How many more storages there are, whose size depends on the values of tensors.
    library_bytes : int
        Of the file that the library was exported to last, or loaded from; 0 before that.
    precision : str
        One of `compiler.precision.PRECISIONS`.
    notes : list of str
        Remarks, one line each.
    logs : list of LogUse
        The tuning logs of the dispatch contexts.
    """

    target: str
    use_topi_schedule: bool
    opt_level: int
    kernels: list[Kernel] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    cache: str = ""
    weights_bytes: int = 0
    activations_bytes: int = 0
    unknown_activations: int = 0
    library_bytes: int = 0
    precision: str = "default"
    notes: list[str] = field(default_factory=list)
    logs: list[LogUse] = field(default_factory=list)

    @property
    def unscheduled(self) -> list[Kernel]:
        """Kernels that no schedule rule matched: correct, but slow."""
        return [kernel for kernel in self.kernels if kernel.source == "none"]

    @property
    def sizes(self) -> str:
        """One line: bytes of packed parameters and activations, and of the file if there is one."""
        activations = f"activations: {_megabytes(self.activations_bytes)}"
        if self.unknown_activations:
            activations += f" and {self.unknown_activations} of a size known only at run time"
        sizes = [f"packed parameters: {_megabytes(self.weights_bytes)}", activations]
        if self.library_bytes:
            sizes.append(f"library: {_megabytes(self.library_bytes)}")
        return "; ".join(sizes)

    @property
    def rounding(self) -> str:
        """One line: operations that round differently from sums in the dtype of the model."""
        algorithms = Counter(each.algorithm.split()[0] for each in self.kernels)
        parts = [
            f"{count} kernel{'s' * (count > 1)} relative to the largest value {where}"
            for name, where in _ERRORS_FOLLOW.items()
            if (count := algorithms[name])
        ]
        parts += [text for name, text in _ROUNDED.items() if name == self.precision]
        return f"rounding: {'; '.join(parts) or 'only the order of sums'}"

    def drop(self, calls: Mapping[str, int]) -> None:
        """Subtract calls that the linked library does not make, by kernel name."""
        for kernel in self.kernels:
            kernel.calls -= calls.get(kernel.name, 0)
        self.kernels = [kernel for kernel in self.kernels if kernel.calls > 0]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers; `from_json` reads them back."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Report:
        """Read what `to_json` wrote."""
        kernels = [Kernel(**kernel) for kernel in data["kernels"]]
        logs = [LogUse(**log) for log in data.get("logs", ())]
        return Report(**{**data, "kernels": kernels, "logs": logs})

    def __repr__(self) -> str:
        return (
            f"<Report: {len(self.kernels)} kernels for {self.target}, opt_level {self.opt_level}, "
            f"precision {self.precision}; print() shows them>"
        )

    def _repr_html_(self) -> str:
        """A table of the kernels, for notebooks."""
        header, *rows = self._table()
        return html_table(repr(self)[1:-1], header, rows)

    def _table(self) -> list[Sequence[str]]:
        """A header, and a row for each kernel."""
        header = "kernel operators implementation algorithm multiplies source nodes calls MFLOP KB"
        rows: list[Sequence[str]] = [header.split()]
        for kernel in self.kernels:
            rows.append(
                (
                    *(kernel.name, " ".join(kernel.operators), kernel.implementation),
                    *(kernel.algorithm, kernel.multiplies, _origin(kernel), kernel.where),
                    *(str(kernel.calls), kernel.megaflops, f"{kernel.bytes / 1e3:.0f}"),
                )
            )
        return rows

    def __str__(self) -> str:
        lines = _aligned(self._table(), 7)
        found = [f"found in the cache: {self.cache}"] if self.cache else []
        precision = f"precision: {self.precision}"
        lines = [lines[0], "-" * len(lines[0]), *lines[1:], *found, precision, self.rounding]
        lines.append(self.sizes)
        lines += [*self._log_table(), *self.notes]
        return "\n".join(lines)

    def _log_table(self) -> list[str]:
        if not self.logs:
            return []
        rows = [["log", "records", "for this target", "matching", "used", "skipped"]]
        for each in self.logs:
            counts = (each.records, each.for_target, each.matching, each.used, len(each.skipped))
            rows.append([each.log, *map(str, counts)])
        reasons = [f"  {each.log}:{reason}" for each in self.logs for reason in each.skipped]
        return [*_aligned(rows, 1), *reasons]


def html_table(title: str, header: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """A table of text after a line, HTML."""

    def cell(tag: str, text: str) -> str:
        align = " align=right" if text.replace(".", "").isdigit() else ""
        return f"<{tag}{align}>{html.escape(text)}</{tag}>"

    lines = [
        "".join(cell(tag, str(each)) for each in row)
        for tag, row in (("th", header), *(("td", row) for row in rows))
    ]
    table = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<p>{html.escape(title)}</p><table>{table}</table>"


def _aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Lines of a table whose first `left` columns are text and the others numbers."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB ({count} bytes)"
