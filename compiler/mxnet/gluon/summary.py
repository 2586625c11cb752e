"""The table that `Block.summary` prints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from compiler.errors import BlockError

from ..array.ndarray import ndarray
from .pytree import arrays_in

if TYPE_CHECKING:
    from .block import Block


def print_summary(block: Block, inputs: tuple[Any, ...]) -> None:
    """Print what hooks on all children see in a call; BlockError if a block is hybridized."""
    rows: list[tuple[str, str, int]] = [("Input", _shapes(inputs), 0)]
    handles = []

    def watch(child: Block) -> None:
        if getattr(child, "is_active", False):
            raise BlockError(
                f"{type(child).__name__} is hybridized; call hybridize(False) before summary()"
            )

        def hook(current: Block, _: Any, outputs: Any) -> None:
            name = f"{type(current).__name__}-{len(rows)}"
            own = (p.shape for p in current.params.values() if p.shape is not None)
            rows.append((name, _shapes(outputs), sum(math.prod(shape) for shape in own)))

        handles.append(child.register_forward_hook(hook))

    try:
        block.apply(watch)
        block(*inputs)
    finally:
        for handle in handles:
            handle.detach()
    params = {id(p): p for p in block.collect_params().values()}.values()
    total = sum(math.prod(p.shape) for p in params if p.shape is not None)
    line = "-" * 80
    print(line)
    print(f"{'Layer (type)':>24}  {'Output Shape':>40}  {'Param #':>10}")
    print("=" * 80)
    for name, shapes, count in rows:
        print(f"{name:>24}  {shapes:>40}  {count:>10}")
    print("=" * 80)
    print(f"Parameters in total: {total}")
    print(line)


def _shapes(value: Any) -> str:
    shapes = [str(each.shape) for each in arrays_in(value) if isinstance(each, ndarray)]
    return ", ".join(shapes)
