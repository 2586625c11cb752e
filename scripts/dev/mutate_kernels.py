"""Remove each barrier and each wait of every family of CUDA kernels, shorten each shared array.

Each kernel runs in the PTX interpreter of the tests, as nvcc made it and with one thing missing. It
follows every access: where a barrier is missing and nothing is noticed, all accesses of
different threads to one place were still ordered, by other barriers; such a barrier is redundant.
Needs nvcc, no GPU.

    python scripts/dev/mutate_kernels.py                       # all families
    python scripts/dev/mutate_kernels.py conv softmax --arch sm_80
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.ptx.mutants import mutants
from tests.ptx.scheduled import Scheduled
from tests.schedules.cuda.families import FAMILIES, Family


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", help="their names; all of them if none is named")
    parser.add_argument("--arch", default="sm_90")
    options = parser.parse_args()
    unknown = set(options.families) - {family.name for family in FAMILIES}
    if unknown:
        parser.error(f"no such family: {', '.join(sorted(unknown))}")
    chosen = [f for f in FAMILIES if not options.families or f.name in options.families]
    print(
        f"{'family':24}{'rule':28}{'kernels':>8}{'problems':>9}{'mutants':>8}{'noticed':>8}{'s':>7}"
    )
    totals = [0, 0, 0, 0]
    for family in chosen:
        counts = examine(family, options.arch)
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
    print(f"{'all':52}{totals[0]:8}{totals[1]:9}{totals[2]:8}{totals[3]:8}")
    return 1 if totals[1] else 0


def examine(family: Family, arch: str) -> tuple[int, int, int, int]:
    """Kernels, problems of the kernels as they are, mutants, and mutants noticed."""
    start = time.perf_counter()
    rule, func, target = family.scheduled(arch)
    scheduled = Scheduled(func, target)
    inputs = family.inputs()
    outcome = scheduled.interpret(inputs)
    problems = list(outcome.problems)
    family.check(outcome.outputs[0], inputs)
    made, missed = 0, []
    for mutant in mutants(scheduled.ptx, scheduled.launches):
        made += 1
        if not scheduled.interpret(inputs, mutant.ptx, mutant.launches).problems:
            missed.append(mutant.missing)
    kernels, seconds = len(scheduled.launches), time.perf_counter() - start
    noticed = made - len(missed)
    row = f"{kernels:8}{len(problems):9}{made:8}{noticed:8}{seconds:7.1f}"
    print(f"{family.name:24}{rule:28}{row}", flush=True)
    for problem in problems:
        print(f"    {problem}")
    for missing in missed:
        print(f"    not missed: {missing}")
    return kernels, len(problems), made, noticed


if __name__ == "__main__":
    sys.exit(main())
