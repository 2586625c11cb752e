"""Computes over blocked channels, NCHW[b]c: what Ansor tuned of NCHW networks on x86.

TVM's AlterOpLayout chose the blocks before tasks were extracted:

    data (N, C/i, H, W, i)  weight (O/o, C/i, kh, kw, i, o)  result (N, O/o, H, W, o)

Names of stages and axes are those of TOPI.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from tvm import te, topi

Shape = tuple[int, ...]
Anchor = tuple[list[Any], Any]
Windows = Callable[[int, int, int], Iterator[tuple[int, int, int]]]


def convolutions(data: Any, weight: Shape, result: Shape, windows: Windows) -> Iterator[Anchor]:
    """Convolutions with blocks of channels, and depthwise ones.

    Parameters
    ----------
    windows : callable
        From sizes before and after, and a kernel's, to strides and paddings that fit.
    """
    batch, chunks, height, width, block = (int(dim) for dim in data.shape)
    if len(weight) != 6 or len(result) != 5:
        return
    out_chunks, in_chunks, rows, columns, in_block, out_block = weight
    if (out_chunks, out_block) != (result[1], result[4]) or batch != result[0]:
        return
    depthwise = (in_chunks, in_block) == (1, 1) and chunks * block == out_chunks * out_block
    if not depthwise and (in_chunks, in_block) != (chunks, block):
        return
    kernel = te.placeholder(weight, data.dtype, "weight")
    for down, across in itertools.product(
        windows(height, result[2], rows), list(windows(width, result[3], columns))
    ):
        if down[0] == across[0]:
            name = "PaddedInput" if depthwise else "data_pad"
            padded = _padded(data, down[1:], across[1:], name)
            make = _depthwise if depthwise else _dense_channels
            yield [data, kernel], make(padded, kernel, result, down[0])


def pooling(data: Any, result: Shape, windows: Windows) -> Iterator[Anchor]:
    """Average and maximum pooling of blocked channels."""
    if len(result) != 5 or result[1] != int(data.shape[1]):
        return
    layout, sizes = f"NCHW{result[4]}c", [int(dim) for dim in data.shape[2:4]]
    yield [data], topi.nn.adaptive_pool(data, result[2:4], "avg", layout)
    for kernel in (2, 3, 5, 7):
        for down, across in itertools.product(
            windows(sizes[0], result[2], kernel), list(windows(sizes[1], result[3], kernel))
        ):
            if down[0] != across[0]:
                continue
            sides = (down[1], across[1], down[2], across[2])
            for kind, inside in (("max", False), ("avg", True), ("avg", False)):
                yield [data], topi.nn.pool2d(
                    data, [kernel] * 2, [down[0]] * 2, [1, 1], sides, kind, layout=layout,
                    count_include_pad=inside,
                )  # fmt: skip


def _padded(data: Any, rows: tuple[int, ...], columns: tuple[int, ...], name: str) -> Any:
    if not any((*rows, *columns)):
        return data
    before, after = (0, 0, rows[0], columns[0], 0), (0, 0, rows[1], columns[1], 0)
    return topi.nn.pad(data, before, after, name=name)


def _dense_channels(data: Any, weight: Any, result: Shape, stride: int) -> Any:
    block, channels = int(data.shape[4]), int(data.shape[1]) * int(data.shape[4])
    ic = te.reduce_axis((0, channels), "ic")
    kh, kw = te.reduce_axis((0, weight.shape[2]), "kh"), te.reduce_axis((0, weight.shape[3]), "kw")

    def product(n: Any, oc_chunk: Any, oh: Any, ow: Any, oc_block: Any) -> Any:
        chunk, inside = te.indexdiv(ic, block), te.indexmod(ic, block)
        x = data[n, chunk, oh * stride + kh, ow * stride + kw, inside]
        return te.sum(x * weight[oc_chunk, chunk, kh, kw, inside, oc_block], axis=[ic, kh, kw])

    return te.compute(result, product, name="conv2d_NCHWc")


def _depthwise(data: Any, weight: Any, result: Shape, stride: int) -> Any:
    block, out_block = int(data.shape[4]), result[4]
    kh, kw = te.reduce_axis((0, weight.shape[2]), "kh"), te.reduce_axis((0, weight.shape[3]), "kw")

    def product(b: Any, oco: Any, oh: Any, ow: Any, oci: Any) -> Any:
        channel = oco * out_block + oci
        chunk, inside = te.indexdiv(channel, block), te.indexmod(channel, block)
        x = data[b, chunk, oh * stride + kh, ow * stride + kw, inside]
        return te.sum(x * weight[oco, 0, kh, kw, 0, oci], axis=[kh, kw])

    return te.compute(result, product, name="DepthwiseConv2d")
