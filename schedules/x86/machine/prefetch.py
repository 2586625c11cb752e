"""Marks on the loops of a product whose weights are streamed from memory.

The weights of one register tile's columns are a panel, contiguous in memory; panels follow each
other. All row tiles pass over one panel before the next one is needed:

    panel                                      weights + panel * panel_bytes
      rows                                     row tiles that use the panel
        steps                                  of the reduction: stride_bytes further each
          fma

The pass `lowering.kernel_passes.prefetch` lets each step ask for its share of the next panel, so
that memory is read evenly all the time, not only while the first row tile waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ROWS = "pragma_prefetch_rows"
WHOLE = 0
"""Value of `ROWS` that makes all iterations of the loop row tiles."""
STEPS = "pragma_prefetch_steps"
STRIDE = "pragma_prefetch_stride"
PANEL = "pragma_prefetch_panel"
KEYS = (ROWS, STEPS, STRIDE, PANEL)
AHEAD = "pragma_prefetch_ahead"
RESULTS = "pragma_prefetch_results"
TILE = "pragma_prefetch_tile"


def stream_panels(
    sch: Any,
    rows: Sequence[tuple[Any, int]],
    steps: Sequence[Any],
    panel_bytes: int,
    stride_bytes: int,
) -> None:
    """Have a product's panels prefetched.

    `rows`: loops over the row tiles of a panel, outermost first. A loop that was fused with outer
    ones has a larger extent than is given here; its row is the remainder. `steps`: the reduction,
    outermost first; the last one has no other loop inside but unrolled ones. `panel_bytes`: from
    one panel to the next. `stride_bytes`: from one step to the next.
    """
    for loop, extent in rows:
        sch.annotate(loop, ROWS, extent)
    for loop in steps[:-1]:
        sch.annotate(loop, STEPS, int(sch.get(loop).extent))
    sch.annotate(steps[0], STRIDE, stride_bytes)
    sch.annotate(steps[-1], PANEL, panel_bytes)


def prefetch_results(sch: Any, tiles: Sequence[Any], results: Sequence[Any]) -> None:
    """Prefetch the data that the loops `results` read and write in the loops over register tiles.

    `tiles`, `results`: of two nests in one body, outermost first. Indices of tensors that outlive
    the function depend on the last of `results` and on no loop inside.
    """
    for loop in tiles:
        sch.annotate(loop, AHEAD, int(sch.get(loop).extent))
    for loop in results:
        sch.annotate(loop, RESULTS, 1)


def prefetch_tile(sch: Any, chunk: Any) -> None:
    """Prefetch the data that a register tile's epilogue and the next tile read and write.

    `chunk`: the outermost one of the reduction, over blocks of input channels.
    """
    sch.annotate(chunk, TILE, 1)
