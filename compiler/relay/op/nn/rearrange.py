"""Space-to-depth, space-to-batch and their inverses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from ....errors import RelayTypeError
from .. import quantization
from ..op_def import FOLLOW, INJECTIVE
from ..registry import operator
from ..reshaping import reshaped
from ..shapes import Extent, extents, integers, rank
from ..slicing import strided_slice
from ..typed_relax import op
from .padding import pad


def _quotient(size: Extent, block: int) -> Extent:
    if isinstance(size, int) and size % block:
        raise RelayTypeError(f"an extent of {size} does not divide into blocks of {block}")
    return size // block


def _moved(data: relax.Expr, shape: list[Any], order: list[int], result: list[Any]) -> relax.Expr:
    """Reshape to `shape`, permute the axes, reshape to `result`."""
    return reshaped(op.permute_dims(reshaped(data, shape), order), result)


def _whole_blocks(data: relax.Expr, axis: int, size: int) -> relax.Expr:
    """Drop trailing channels that do not fill a block, which Relay's operator ignores."""
    channels = extents(data)[axis]
    if not isinstance(channels, int) or channels % size == 0:
        return data
    return op.strided_slice(data, [axis], [0], [channels // size * size], [1])


@operator("nn.depth_to_space", pattern=INJECTIVE, precision=FOLLOW, quantized=quantization.same)
def depth_to_space(
    data: relax.Expr, block_size: int, layout: str = "NCHW", mode: str = "DCR"
) -> relax.Expr:
    """Move channels to spatial blocks; in mode DCR the block index is the outer channel part.

    In mode CRD, which old modules also call CDR, it is the inner part.
    """
    if mode not in ("DCR", "CRD", "CDR"):
        raise RelayTypeError(f"mode must be DCR or CRD, not {mode!r}")
    block = int(block_size)
    if layout in ("NCHW", "NHWC"):
        data = _whole_blocks(data, layout.index("C"), block * block)
    if layout == "NCHW":
        n, c, h, w = extents(data)
        depth = _quotient(c, block * block)
        result = [n, depth, h * block, w * block]
        if mode == "DCR":
            return _moved(data, [n, block, block, depth, h, w], [0, 3, 4, 1, 5, 2], result)
        return _moved(data, [n, depth, block, block, h, w], [0, 1, 4, 2, 5, 3], result)
    if layout != "NHWC":
        raise RelayTypeError(f"layout must be NCHW or NHWC, not {layout!r}")
    n, h, w, c = extents(data)
    depth = _quotient(c, block * block)
    result = [n, h * block, w * block, depth]
    if mode == "DCR":
        return _moved(data, [n, h, w, block, block, depth], [0, 1, 3, 2, 4, 5], result)
    return _moved(data, [n, h, w, depth, block, block], [0, 1, 4, 2, 5, 3], result)


@operator("nn.space_to_depth", ignored=("mode",), pattern=INJECTIVE)
def space_to_depth(data: relax.Expr, block_size: int, layout: str = "NCHW") -> relax.Expr:
    """Move spatial blocks to channels; the block index is the outer part of the new channel."""
    block = int(block_size)
    if layout == "NCHW":
        n, c, h, w = extents(data)
        h, w = _quotient(h, block), _quotient(w, block)
        result = [n, c * block * block, h, w]
        return _moved(data, [n, c, h, block, w, block], [0, 3, 5, 1, 2, 4], result)
    if layout != "NHWC":
        raise RelayTypeError(f"layout must be NCHW or NHWC, not {layout!r}")
    n, h, w, c = extents(data)
    h, w = _quotient(h, block), _quotient(w, block)
    result = [n, h, w, c * block * block]
    return _moved(data, [n, h, block, w, block, c], [0, 1, 3, 2, 4, 5], result)


@operator("nn.space_to_batch_nd", pattern=INJECTIVE)
def space_to_batch_nd(
    data: relax.Expr, block_shape: Sequence[int], paddings: Any, pad_value: float = 0
) -> relax.Expr:
    """Pad spatial axes and move their blocks to the batch."""
    blocks = integers(block_shape)
    widths = [integers(pair, 2) for pair in paddings]
    count, rest = len(blocks), rank(data) - 1 - len(blocks)
    padded = pad(data, [[0, 0], *widths, *[[0, 0]] * rest], float(pad_value), "constant")
    batch, *sizes = extents(padded)
    split: list[Any] = [batch]
    for size, block in zip(sizes, blocks):
        split += [_quotient(size, block), block]
    inner = [2 + 2 * i for i in range(count)]
    outer = [1 + 2 * i for i in range(count)]
    tail = [1 + 2 * count + i for i in range(rest)]
    product = batch
    for block in blocks:
        product = product * block
    result = [product, *(split[axis] for axis in outer), *sizes[count:]]
    return _moved(padded, [*split, *sizes[count:]], [*inner, 0, *outer, *tail], result)


@operator("nn.batch_to_space_nd", pattern=INJECTIVE)
def batch_to_space_nd(data: relax.Expr, block_shape: Sequence[int], crops: Any) -> relax.Expr:
    """Move parts of the batch to spatial blocks and crop the result."""
    blocks = integers(block_shape)
    edges = [integers(pair, 2) for pair in crops]
    count = len(blocks)
    batch, *sizes = extents(data)
    for block in blocks:
        batch = _quotient(batch, block)
    order = [count]
    for i in range(count):
        order += [count + 1 + i, i]
    order += list(range(2 * count + 1, count + 1 + len(sizes)))
    grown = [size * block for size, block in zip(sizes, blocks)]
    whole = _moved(data, [*blocks, batch, *sizes], order, [batch, *grown, *sizes[count:]])
    if not any(edge for pair in edges for edge in pair):
        return whole
    begin = [first for first, _ in edges]
    end = [size - last for size, (_, last) in zip(grown, edges)]
    return strided_slice(whole, begin, end, [1] * count, list(range(1, count + 1)))
