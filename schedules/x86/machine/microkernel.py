"""Microkernels: reductions outlined into functions, with several steps per iteration.

A register tile of a CPU with 16 vector registers leaves none of them free, and a step of its
reduction is short: 12 multiply-adds take six cycles, in which such a CPU issues some 30
instructions. Two things that 32 registers forgive therefore cost a third of the speed there.

1. Values that LLVM keeps in registers across the reduction, such as the constants of an
   epilogue's polynomials that it loads before the loops, spill accumulators: these are loaded
   and stored in every step. `mark` makes `lowering.kernel_passes.microkernel` outline the
   reduction into a function without such values.
2. The loop's own instructions and the address of a prefetch are a third of all that a step
   issues. `steps_together` says how many steps share them.

Sums that fill 28 of 32 registers leave none to an epilogue that calls exp or erf for several
vectors side by side: LLVM stored and loaded ten vectors for each result, and a SiLU took 46 to 63
cycles of a Zen 4 instead of 20. `keep_sums_in_memory` makes a function of such a reduction, too.
"""

from __future__ import annotations

from typing import Any

from .cpu import Machine

MARK = "pragma_microkernel"

# Steps that share the instructions of the loop and of its prefetch.
STEPS_TOGETHER = 8
# A call and the accumulators' way through memory take some 50 cycles; a step takes six.
LEAST_STEPS = 32


def steps_together(steps: int, machine: Machine) -> int:
    """Choose reduction steps per iteration, a divisor of `steps`; 1 where registers are plenty."""
    if not registers_are_scarce(machine):
        return 1
    return next(count for count in range(STEPS_TOGETHER, 0, -1) if steps % count == 0)


def mark(sch: Any, loop: Any, steps: int, machine: Machine) -> None:
    """Make a function of `loop` if registers are scarce and it has steps enough to pay for calls.

    `loop`: has the reduction inside, and the accumulators' first values if possible, but nothing of
    an epilogue. `steps`: of the reduction.
    """
    if registers_are_scarce(machine) and steps >= LEAST_STEPS:
        sch.annotate(loop, MARK, 1)


def keep_sums_in_memory(sch: Any, loop: Any) -> None:
    """Make a function of the reduction `loop`: what follows finds the sums in memory."""
    sch.annotate(loop, MARK, 1)


def registers_are_scarce(machine: Machine) -> bool:
    """Whether register tiles fill all vector registers: 16 of them."""
    return machine.vector_registers <= 16
