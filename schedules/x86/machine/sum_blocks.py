"""Mark reductions that are summed in shorter blocks for accuracy.

Winograd's larger tiles multiply what is added by up to 256 (`scripts.bench.error_bounds`). On
random images, sums of 256 products in one chain were off by 1.4e-5 of the largest result, in blocks
of 64 by 5e-6. `lowering.kernel_passes.partial_sums` makes the blocks.
"""

from __future__ import annotations

from typing import Any

MARK = "pragma_sum_block"

TERMS = 64
"""Number of terms in a block of a marked reduction."""

_MANY_POINTS = 25
"""Products of a tile from which the magnitudes of all terms grow by 49 and more."""


def marks(points: int) -> dict[str, int]:
    """Annotations of a loop that adds the products of a Winograd tile of `points` points."""
    return {MARK: TERMS} if points >= _MANY_POINTS else {}


def mark(sch: Any, loop: Any, points: int) -> None:
    """Mark `loop`, including loops inside, as a reduction that is summed in blocks."""
    for key, value in marks(points).items():
        sch.annotate(loop, key, value)
