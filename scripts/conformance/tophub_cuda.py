"""Build the kernels of a log of AutoTVM's for CUDA, such as TopHub's, and say what became of each.

Every record's operator is built under that record alone, down to CUDA C. Where its template takes
the record, the kernel is one of it ("taken"); where not, the logged reason is its cause. Of every
n-th taken record (`--ptxas n`) nvcc and ptxas make machine code, for the oldest architecture that
this nvcc knows, since those that TopHub's records were tuned on are older. A table of templates and
devices comes at the end.

    python -m scripts.conformance.tophub_cuda cuda_v0.10.log --every 5 --ptxas 20
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter, defaultdict

import numpy as np
from tvm.target import Target

from compiler import autotvm
from compiler.autotvm import MeasureInput
from compiler.autotvm.single_op_program import program_of
from compiler.errors import BatonError
from schedules.cuda.limits import of_arch
from tests.ptx import ptxas
from tests.ptx.scheduled import Scheduled
from tests.schedules.cuda.replaying import scheduled_kernel


class _Reasons(logging.Handler):
    """The last warning of the schedules."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log")
    parser.add_argument("--every", type=int, default=1, help="of so many records take one")
    parser.add_argument("--ptxas", type=int, default=0, help="of so many taken ones compile one")
    parser.add_argument("--arch", default="sm_75")
    options = parser.parse_args()
    reasons = _Reasons()
    logging.getLogger("baton.schedules").addHandler(reasons)
    table: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    causes: Counter[tuple[str, str]] = Counter()
    taken = 0
    for number, (inp, _) in enumerate(autotvm.load_from_file(options.log)):
        if number % options.every:
            continue
        row = table[inp.task.name, str(inp.target)]
        row["records"] += 1
        try:
            outcome, scheduled = examine(inp, options.arch, reasons)
        except (BatonError, AssertionError) as error:
            outcome, scheduled = f"{type(error).__name__}: {str(error).splitlines()[0]}", None
        if scheduled is None:
            row["refused"] += 1
            causes[inp.task.name, outcome] += 1
            continue
        row["taken"] += 1
        if options.ptxas and taken % options.ptxas == 0:
            row["compiled"] += 1
            used = ptxas.resources(scheduled.ptx, options.arch).values()
            row["spilled"] += sum(kernel.spilled > 0 for kernel in used)
        taken += 1
    titles = ("records", "taken", "refused", "compiled", "spilled")
    print(f"{'template':28}{'device':28}" + "".join(f"{title:>10}" for title in titles))
    for (template, device), row in sorted(table.items()):
        print(f"{template:28}{device:28}" + "".join(f"{row[title]:>10}" for title in titles))
    for (template, cause), count in causes.most_common():
        print(f"{count:6} {template}: {cause}")
    return 0


def examine(inp: MeasureInput, arch: str, reasons: _Reasons) -> tuple[str, Scheduled | None]:
    """The kernel of a record as CUDA C, or why its template did not take it."""
    reasons.last = ""
    program = program_of(inp.task, np.random.default_rng(0))
    made, _ = scheduled_kernel(inp, program, arch)
    if made.rule != inp.task.name:
        return reasons.last or f"became {made.rule}", None
    target = Target({"kind": "cuda", "arch": arch}, host="llvm")
    scheduled = Scheduled(made.func, target)
    room = of_arch(arch)
    for launch in scheduled.launches:
        if np.prod(launch.block) > room.threads_per_block:
            return f"{np.prod(launch.block)} threads a block", None
    return "", scheduled


if __name__ == "__main__":
    sys.exit(main())
