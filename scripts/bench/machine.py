"""Show the figures that cost rules use for a CPU, and measure them if it is this machine's.

python -m scripts.bench.machine --target "llvm -mcpu=znver4"
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import Any

from compiler.cli.console import show, show_found, table
from compiler.errors import TargetError


@dataclass(frozen=True)
class Figure:
    """One number of a core: the table's, and the measured one of this machine; None where the
    target is another CPU, or nothing measures it."""

    name: str
    unit: str
    known: float
    measured: float | None = None


@dataclass(frozen=True)
class Figures:
    """What is known of one CPU; `row` names its row of the table that the cost rules read."""

    target: str
    row: str
    is_host: bool
    figures: list[Figure]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return asdict(self)


def examine(text: str) -> Figures:
    """What the table says of a target's CPU; on this machine's the same numbers are measured.

    Raises
    ------
    TargetError
        The target is not a CPU of x86.
    """
    from compiler import target as targets
    from compiler.target.cpu import architecture, system_triple
    from schedules.x86.machine.cpu import Machine, is_host
    from schedules.x86.machine.cpu_models import CORES, core_of
    from scripts.bench.machine_peak import gigahertz, memory_gbytes, peak_gflops

    target = targets.parse(text)
    triple = str(target.attrs.get("mtriple", "")) or system_triple()
    if target.kind.name != "llvm" or not architecture(triple).startswith("x86"):
        raise TargetError(f"the table has x86 CPUs alone; {text!r} is none: name one by -mcpu")
    mcpu, machine = str(target.attrs.get("mcpu", "")), Machine.from_target(target)
    core = core_of(mcpu, machine.vector_bits)
    here = is_host(target)
    clock = gigahertz(target) if here else None
    caches = [
        Figure(f"L{level}", "KiB", known / 1024, found / 1024 if here else None)
        for level, known, found in (
            (1, core.l1_bytes, machine.l1_bytes),
            (2, core.l2_bytes, machine.l2_bytes),
            (3, core.l3_bytes, machine.l3_bytes),
        )
    ]
    return Figures(
        targets.to_cli(target),
        mcpu if mcpu in CORES else f"vectors of {machine.vector_bits} bits",
        here,
        [
            Figure("vector registers", "", machine.vector_registers),
            Figure("vectors", "bits", machine.vector_bits),
            Figure("latency of a multiply-add", "cycles", core.fma_latency),
            Figure("clock while multiplying", "GHz", core.gigahertz, clock),
            Figure(
                "multiply-adds of a core",
                "GFLOP/s",
                machine.flops_per_cycle * core.gigahertz,
                peak_gflops(target, 1) if here else None,
            ),
            Figure(
                "read from memory by a core",
                "GB/s",
                core.memory_bytes * core.gigahertz,
                memory_gbytes(target, 1) if here else None,
            ),
            *caches,
        ],
    )


def show_figures(found: Figures) -> None:
    """Print a line per figure."""
    rows = []
    for figure in found.figures:
        ratio = "-" if figure.measured is None else f"{figure.measured / figure.known:.2f}"
        measured = "-" if figure.measured is None else f"{figure.measured:.4g}"
        rows.append((figure.name, figure.unit, f"{figure.known:.4g}", measured, ratio))
    header = ("figure", "unit", "table", "this machine", "ratio")
    show(table(header, rows, title=f"{found.target}: the table's row {found.row}"))
    if not found.is_host:
        show("Another CPU than this machine's: nothing is measured.")


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args()
    show_found(examine(options.target), options.json, show_figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
