"""Prove every family of CUDA kernels as far as that goes without a GPU.

Each kernel runs in the PTX interpreter of the tests as nvcc made it, and its result is compared
with the CPU's. Then it runs with one thing missing: each barrier, fence and wait is removed, each
shared array shortened by a quarter. The interpreter follows every access: where a
barrier is missing and nothing is noticed, all accesses of different threads to one place were still
ordered, by other barriers; such a barrier is redundant. ptxas says what the kernels of each
architecture take. It is an error if a kernel is wrong, a shortened array is not noticed, a kernel
spills, a multiprocessor has no room for one block, or ptxas waits for each `wgmma` at once. Needs
nvcc and ptxas. Families of one architecture are examined for that one alone.

    python -m scripts.conformance.cuda_kernels                       # all families
    python -m scripts.conformance.cuda_kernels conv softmax --arch sm_80
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter

from tests.ptx import ptxas
from tests.ptx.mutants import mutants
from tests.ptx.scheduled import Scheduled
from tests.schedules.cuda.families import FAMILIES, Family

HEAD = ("kernels", "problems", "mutants", "noticed", "registers", "spilled", "shared", "occupancy")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", help="their names; all of them if none is named")
    parser.add_argument("--arch", nargs="*", default=["sm_90", "sm_80"])
    options = parser.parse_args()
    unknown = set(options.families) - {family.name for family in FAMILIES}
    if unknown:
        parser.error(f"no such family: {', '.join(sorted(unknown))}")
    print(f"{'family':26}{'arch':7}{'rule':26}" + "".join(f"{title:>10}" for title in HEAD))
    totals: Counter[str] = Counter()
    for family in FAMILIES:
        if not options.families or family.name in options.families:
            archs = [family.arch] if family.arch else options.arch
            for arch in archs:
                totals += examine(family, arch, whole=arch == archs[0])
    print("; ".join(f"{totals[what]} {what}" for what in (*HEAD[:4], "redundant", "failures")))
    return 1 if totals["failures"] else 0


def examine(family: Family, arch: str, whole: bool) -> Counter[str]:
    """Print a family's row; with mutants where it is the `whole` examination."""
    rule, func, target = family.scheduled(arch)
    scheduled = Scheduled(func, target)
    found = Counter(kernels=len(scheduled.launches)) if whole else Counter[str]()
    notes = prove(family, scheduled, found) if whole else []
    used = ptxas.resources(scheduled.ptx, arch)
    occupancy = []
    for launch in scheduled.launches:
        threads = math.prod(launch.block)
        blocks, share = used[launch.kernel].occupancy(arch, threads, launch.dynamic_shared)
        occupancy.append(share)
        if blocks == 0 or used[launch.kernel].spilled:
            found["failures"] += 1
            notes.append(f"{launch.kernel} spills, or no multiprocessor has room for it")
        if used[launch.kernel].serialized:
            found["failures"] += 1
            notes.append(f"ptxas serializes the wgmma of {launch.kernel}")
    row = [str(found[what]) if whole else "" for what in HEAD[:4]]
    shared = max(
        used[launch.kernel].shared + launch.dynamic_shared for launch in scheduled.launches
    )
    row += [
        str(max(kernel.registers for kernel in used.values())),
        str(sum(kernel.spilled for kernel in used.values())),
        str(shared),
        f"{min(occupancy):.0%}",
    ]
    columns = "".join(f"{value:>10}" for value in row)
    print(f"{family.name:26}{arch:7}{rule:26}{columns}", flush=True)
    for note in notes:
        print(f"    {note}")
    return found


def prove(family: Family, scheduled: Scheduled, found: Counter[str]) -> list[str]:
    """Run the kernels and their mutants; what there is to say."""
    inputs = family.inputs()
    outcome = scheduled.interpret(inputs)
    notes = [str(problem) for problem in outcome.problems]
    try:
        family.check(outcome.outputs[0], inputs)
    except AssertionError as error:
        notes.append(f"wrong: {' '.join(str(error).split())[:200]}")
    found["problems"] += len(notes)
    found["failures"] += len(notes)
    for mutant in mutants(scheduled.ptx, scheduled.launches):
        found["mutants"] += 1
        if scheduled.interpret(inputs, mutant.ptx, mutant.launches).problems:
            found["noticed"] += 1
        elif mutant.is_shorter:
            found["failures"] += 1
            notes.append(f"not noticed: {mutant.missing}")
        else:
            found["redundant"] += 1
            notes.append(f"redundant: {mutant.missing}")
    return notes


if __name__ == "__main__":
    sys.exit(main())
