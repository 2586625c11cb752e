"""Traces of a block whose `forward` reads shapes, one per set of input shapes."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler.errors import BlockArgumentError

if TYPE_CHECKING:
    from ..array.ndarray import ndarray
    from .hybrid_block import HybridBlock

_KEPT = 32
"""Traces that are kept besides the block's own; the one used longest ago goes."""

Shapes = tuple[tuple[int, ...], ...]


class ShapeTraces:
    """Traces by input shapes; `forward` reads one at `site`, the block's own has `shapes`."""

    def __init__(self, site: str, shapes: Sequence[tuple[int, ...]]) -> None:
        self._site = site
        self._own: Shapes = tuple(shapes)
        self._others: OrderedDict[Shapes, HybridBlock] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies know what their block's trace is of, and make the others' anew."""
        return type(self), (self._site, self._own)

    def block_for(
        self, block: HybridBlock, args: tuple[Any, ...], arrays: Sequence[ndarray]
    ) -> HybridBlock:
        """The block, or a copy traced for other shapes; BlockArgumentError if it is partitioned."""
        shapes = tuple(array.shape for array in arrays)
        if shapes == self._own:
            return block
        if block._is_partitioned:
            raise BlockArgumentError(
                f"{type(block).__name__} was partitioned for inputs of the shapes "
                f"{list(self._own)}, and its forward reads a shape ({self._site}), so it may "
                f"compute something else for {list(shapes)}; call optimize_for(..., clear=True) "
                "with inputs of these shapes, or don't let forward depend on shapes"
            )
        with self._lock:
            other = self._others.get(shapes)
            if other is None:
                other = self._others[shapes] = copy.copy(block)
                other._clear_cache()
                if len(self._others) > _KEPT:
                    self._others.popitem(last=False)
            self._others.move_to_end(shapes)
            return other
