"""The compute behind a record's hash when there is no module to take it from.

A hashed key holds the shapes of all operands and the MD5 of the compute's text. The shapes leave
few computes that networks are made of: a convolution's stride and padding follow from its sizes,
what comes after it from the operands that are left. Each is built with TOPI and its hash compared,
so what is returned has exactly the recorded text. The amount of padding is not part of that text;
where the sizes allow several, the symmetric one is taken.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tvm import te, topi

from ...errors import RecordError
from . import guess_blocked
from .compute_variants import Candidate, candidates
from .dag import read_dag
from .dag_text import dag_hash, dag_text
from .record import WorkloadKey, decode_key
from .tvm_versions import names_of_eras

Shape = tuple[int, ...]
Anchor = tuple[list[Any], Any]

_STRIDES = (1, 2, 4)
_ENDINGS: tuple[tuple[Callable[[Any], Any], ...], ...] = (
    (), (topi.nn.relu,), (topi.tanh,), (topi.fast_tanh,), (topi.sigmoid,),
    (lambda x: topi.clip(x, 0.0, 6.0),),
)  # fmt: skip
_MOST_OPERANDS = 6


def compute_of_key(text: str, dtype: str = "float32") -> Candidate | None:
    """A compute whose workload key this is; None if none of the known kinds has that hash."""
    return next(computes_of_key(text, dtype), None)


def computes_of_key(text: str, dtype: str = "float32") -> Iterator[Candidate]:
    """The computes whose workload key this is, the likeliest first.

    Windows of several sizes can share a key: neither their extents nor the padding are part of
    what was hashed.
    """
    key = decode_key(text)
    if not key.is_hash or not all(isinstance(dim, int) and dim > 0 for dim in key.args):
        return
    for shapes in _shapes(text, key):
        if not 2 <= len(shapes) <= _MOST_OPERANDS:
            continue
        for anchor in _anchors(shapes, dtype):
            yield from _with_epilogue(anchor, shapes, key, dtype)
        if len(shapes) > 3 and shapes[0] == shapes[-1]:  # a residual may be the first operand
            for anchor in _anchors(shapes[1:], dtype):
                yield from _with_epilogue(anchor, shapes[1:], key, dtype, residual=shapes[0])


def _shapes(text: str, key: WorkloadKey) -> Iterator[tuple[Shape, ...]]:
    """Shapes of the operands; older keys lack the brackets, so all ranks are tried."""
    rest = json.loads(text)[1:]
    if rest and all(isinstance(shape, list) for shape in rest):
        yield tuple(map(tuple, rest))
        return
    for rank in (4, 2, 3, 5):
        if len(key.args) % rank == 0:
            dims = [key.args[i : i + rank] for i in range(0, len(key.args), rank)]
            yield tuple(map(tuple, dims))
    if len(key.args) % 5 == 1 and len(key.args) > 15:  # a weight of rank 6 between others of 5
        ends = [0, 5, *range(11, len(key.args) + 1, 5)]
        yield tuple(tuple(key.args[i:j]) for i, j in itertools.pairwise(ends))


def _anchors(shapes: tuple[Shape, ...], dtype: str) -> Iterator[Anchor]:
    """The first computes that a kernel with these operands can have, and their operands."""
    ranks = {len(shape) for shape in shapes[:2]}
    for makers in (_WITH_WEIGHT, _ALONE):
        for rank, make in makers:
            if rank not in ranks:
                continue
            if makers is _WITH_WEIGHT and len(shapes) < 3:
                continue
            data = te.placeholder(shapes[0], dtype, "data")
            try:
                if makers is _WITH_WEIGHT:
                    yield from make(data, shapes[1], shapes[-1])
                else:
                    yield from make(data, shapes[-1])
            except (ValueError, IndexError, ZeroDivisionError, AssertionError):
                continue


def _with_epilogue(
    anchor: Anchor,
    shapes: tuple[Shape, ...],
    key: WorkloadKey,
    dtype: str,
    residual: Shape | None = None,
) -> Iterator[Candidate]:
    operands, result = anchor
    rest = shapes[len(operands) : -1]
    extras = [te.placeholder(shape, dtype, f"p{i}") for i, shape in enumerate(rest)]
    first = [] if residual is None else [te.placeholder(residual, dtype, "residual")]
    for operators in itertools.product((topi.add, topi.multiply), repeat=len(rest)):
        for ending in (*_ENDINGS, *_scalings(operands, result)):
            value = result
            try:
                for operator, extra in zip(operators, extras):
                    value = operator(value, extra)
            except Exception:  # shapes that do not broadcast
                return
            for tensor in first:
                value = topi.add(tensor, value)
            for function in ending:
                value = function(value)
            if tuple(int(dim) for dim in value.shape) != shapes[-1]:
                return
            found = _of_hash([*first, *operands, *extras, value], key)
            if found is not None:
                yield found
                return


def _scalings(operands: list[Any], result: Any) -> Iterator[tuple[Callable[[Any], Any], ...]]:
    """Of an attention's scores, by the square root of one of its dimensions."""
    if len(operands) != 2 or len(result.shape) != 3:
        return
    for dim in sorted({int(operands[0].shape[2]), int(result.shape[2])}):
        yield (_by_number(topi.divide, math.sqrt(dim)),)
        yield (_by_number(topi.multiply, 1.0 / math.sqrt(dim)),)


def _by_number(operator: Callable[[Any, Any], Any], number: float) -> Callable[[Any], Any]:
    return lambda x: operator(x, te.const(number, x.dtype))


def _of_hash(tensors: Sequence[Any], key: WorkloadKey) -> Candidate | None:
    try:
        dag = read_dag(te.create_prim_func(list(tensors)))
    except RecordError:
        return None
    forms = candidates(dag, frozenset(range(1, len(tensors) - 1)))
    rank = len(tensors[-1].shape)
    if any(0 < len(tensor.shape) < rank for tensor in tensors[1:-1]):  # a bias, no constant
        forms = itertools.chain(forms, candidates(dag, frozenset()))
    for candidate in forms:
        dims = tuple(dim for shape in candidate.dag.operand_shapes for dim in shape)
        if dims != key.args:
            continue
        for names in names_of_eras(candidate.dag):
            if dag_hash(dag_text(candidate.dag, names, candidate.texts)) == key.name:
                return candidate
    return None


def _windows(size: int, result: int, kernel: int) -> Iterator[tuple[int, int, int]]:
    """Stride, and padding in front and behind, that make `result` places of `size`."""
    for stride in _STRIDES:
        for total in range(2 * kernel):
            if (size + total - kernel) // stride + 1 == result and size + total >= kernel:
                yield stride, total // 2, total - total // 2
                break
        if total % 2 and (size + total + 1 - kernel) // stride + 1 == result:
            yield stride, (total + 1) // 2, (total + 1) // 2


def _pooling_windows(size: int, result: int, kernel: int) -> Iterator[tuple[int, int, int]]:
    """Also with the rows behind that TOPI adds where the result's size is rounded up."""
    for stride, before, after in _windows(size, result, kernel):
        yield stride, before, after
        more = after + stride - 1
        if more > after and (size + before + more - kernel) // stride + 1 == result:
            yield stride, before, more


def _convolutions(data: Any, weight: Shape, result: Shape) -> Iterator[Anchor]:
    """Two-dimensional ones: NHWC, NCHW, grouped, depthwise, and by Winograd's algorithm."""
    for nhwc in (True, False):
        channel, image = (3, (1, 2)) if nhwc else (1, (2, 3))
        sizes = tuple(int(data.shape[dim]) for dim in image)
        channels = int(data.shape[channel])
        for kernel, filters, groups in _kernels(weight, channels, result[channel], nhwc):
            tall = _windows(sizes[0], result[image[0]], kernel[0])
            for rows, columns in itertools.product(
                tall, list(_windows(sizes[1], result[image[1]], kernel[1]))
            ):
                if rows[0] != columns[0]:
                    continue
                w = te.placeholder(filters, data.dtype, "weight")
                padding = [rows[1], columns[1], rows[2], columns[2]]
                layout = ("NHWC", "HWIO") if nhwc else ("NCHW", "OIHW")
                value = topi.nn.conv(data, w, rows[0], padding, 1, groups, *layout, str(data.dtype))
                yield [data, w], value


def _kernels(
    weight: Shape, channels: int, out_channels: int, nhwc: bool
) -> Iterator[tuple[Shape, Shape, int]]:
    """Kernel size, the weight's shape in today's order, and groups, that a weight can mean."""
    if not nhwc:
        kernel, per_group = weight[2:], weight[1]
        if weight[0] == out_channels and channels % per_group == 0:
            yield kernel, weight, channels // per_group
        return
    kernel, per_group = weight[:2], weight[2]
    if weight[3] == out_channels and channels % per_group == 0:
        yield kernel, weight, channels // per_group
    if weight == (*kernel, channels, 1) and channels == out_channels:
        yield kernel, (*kernel, 1, channels), channels
    if weight[0] == weight[1] in (4, 6) and weight[2:] == (out_channels, channels):
        yield (3, 3), (3, 3, channels, out_channels), 1


def _product(data: Any, weight: Any) -> Any:
    """A matrix product, perhaps of batches, with the names that today's operator gives it."""
    k = te.reduce_axis((0, data.shape[-1]), "k")
    if len(data.shape) == 2:
        return te.compute(
            (data.shape[0], weight.shape[1]),
            lambda i0, i1: te.sum(data[i0, k] * weight[k, i1], axis=k),
            name="matmul",
        )
    return te.compute(
        (data.shape[0], data.shape[1], weight.shape[2]),
        lambda i0, i1, i2: te.sum(data[i0, i1, k] * weight[i0, k, i2], axis=k),
        name="matmul",
    )


def _dense(data: Any, weight: Shape, result: Shape) -> Iterator[Anchor]:
    if weight[1] == int(data.shape[1]) and weight[0] == result[1]:
        w = te.placeholder((weight[1], weight[0]), data.dtype, "weight")
        yield [data, w], _product(data, w)
    if weight[0] == int(data.shape[1]) and weight[1] == result[1]:
        w = te.placeholder(weight, data.dtype, "weight")
        yield [data, w], _product(data, w)


def _batched(data: Any, weight: Shape, result: Shape) -> Iterator[Anchor]:
    for k, n in ((weight[2], weight[1]), (weight[1], weight[2])):
        if k == int(data.shape[2]) and n == result[2]:
            w = te.placeholder((weight[0], k, n), data.dtype, "weight")
            yield [data, w], _product(data, w)


def _pooling(data: Any, result: Shape) -> Iterator[Anchor]:
    for layout in ("NHWC", "NCHW"):
        image = [layout.index(axis) for axis in "HW"]
        sizes = [int(data.shape[dim]) for dim in image]
        results = [result[dim] for dim in image]
        if results == [1, 1]:
            yield [data], topi.nn.adaptive_pool(data, (1, 1), "avg", layout)
        for kernel in (2, 3, 7):
            for rows, columns in itertools.product(
                _pooling_windows(sizes[0], results[0], kernel),
                list(_pooling_windows(sizes[1], results[1], kernel)),
            ):
                sides = (rows[1], columns[1], rows[2], columns[2])
                for kind in ("max", "avg") if rows[0] == columns[0] else ():
                    yield [data], topi.nn.pool2d(
                        data, [kernel] * 2, [rows[0]] * 2, [1, 1], sides, kind, layout=layout,
                        count_include_pad=False,
                    )  # fmt: skip


def _softmax(data: Any, result: Shape) -> Iterator[Anchor]:
    if tuple(int(dim) for dim in data.shape) == result:
        yield [data], topi.nn.softmax(data, axis=-1)
        yield [data], topi.nn.fast_softmax(data, axis=-1)


def _variance(data: Any, mean: Shape, result: Shape) -> Iterator[Anchor]:
    """Mean square of the differences from a mean, as of a layer normalization."""
    shape = tuple(int(dim) for dim in data.shape)
    if mean == result and mean == (*shape[:-1], 1):
        means = te.placeholder(mean, data.dtype, "mean")
        difference = topi.subtract(data, means)
        total = topi.sum(topi.multiply(difference, difference), -1, keepdims=True)
        yield [data, means], topi.divide(total, te.const(float(shape[-1]), data.dtype))


def _blocked(data: Any, weight: Shape, result: Shape) -> Iterator[Anchor]:
    yield from guess_blocked.convolutions(data, weight, result, _windows)


def _blocked_pooling(data: Any, result: Shape) -> Iterator[Anchor]:
    yield from guess_blocked.pooling(data, result, _pooling_windows)


def _reductions(data: Any, result: Shape) -> Iterator[Anchor]:
    shape = tuple(int(dim) for dim in data.shape)
    if len(result) == len(shape):
        axes = [i for i, (before, after) in enumerate(zip(shape, result)) if before != after]
        found = [axes] if axes and all(result[axis] == 1 for axis in axes) else []
    else:
        choices = itertools.combinations(range(len(shape)), len(shape) - len(result))
        found = [
            list(axes)
            for axes in choices
            if tuple(dim for axis, dim in enumerate(shape) if axis not in axes) == result
        ]
    for axes in found:
        total = topi.sum(data, axes, keepdims=len(result) == len(shape))
        yield [data], total
        count = math.prod(shape[axis] for axis in axes)
        yield [data], topi.divide(total, te.const(float(count), data.dtype))


_WITH_WEIGHT: tuple[tuple[int, Callable[..., Iterator[Anchor]]], ...] = (
    (4, _convolutions), (2, _dense), (3, _batched), (5, _blocked), (2, _variance), (3, _variance),
)  # fmt: skip
_ALONE: tuple[tuple[int, Callable[..., Iterator[Anchor]]], ...] = (
    (4, _pooling), (5, _blocked_pooling), (2, _softmax), (3, _softmax), (4, _softmax),
    (2, _reductions), (3, _reductions), (4, _reductions), (5, _reductions),
)  # fmt: skip
