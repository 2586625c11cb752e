"""The computes that Ansor may have tuned where a module has a kernel: TOPI's forms of the same.

A kernel of today's module is TOPI's plain compute for today's operators. What TVM gave Ansor for
the same operators could be another form of it:

* a dense layer multiplied with the transposed weight, a batched product likewise;
* a 3x3 convolution could be Winograd's, its weight transformed beforehand;
* a depthwise convolution had a compute of its own, without the reduction over one channel;
* operands that are broadcast had other numbers of leading dimensions of extent 1;
* scalar constants were stages of rank 0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm import te, tirx

from .access import coefficient, index_of, offset
from .dag import ComputeDag, Operation
from .emit import Rebuilt, Replacement, compute, rebuild, translate, unchanged
from .packing import Packing
from .winograd import KERNEL, WinogradForm

logger = logging.getLogger("baton.auto_scheduler")

_WINOGRAD_TILES = (4, 2)


@dataclass(frozen=True)
class Candidate:
    """One form of a kernel's compute.

    Attributes
    ----------
    dag : ComputeDag
    operands : tuple of (int, Packing)
        For each input of its function, the kernel's parameter it is made from.
    texts : dict
        Right-hand sides of stages whose expression TVM once simplified otherwise, by name.
    """

    dag: ComputeDag
    operands: tuple[tuple[int, Packing], ...]
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Form:
    """What is replaced in the kernel's DAG, and the texts that go with it."""

    replaced: Mapping[Operation, Replacement] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


def candidates(dag: ComputeDag, known: frozenset[int]) -> Iterator[Candidate]:
    """Forms of a kernel, the plain one first.

    Parameters
    ----------
    known : frozenset of int
        Parameters whose values are known when the module is built.
    """
    texts = _pooling_texts(dag)
    plain = unchanged(dag)
    yield from _with_constant_stages(Candidate(plain.dag, plain.operands, texts))
    shapes = _full_ranks(dag)
    for form in [_Form(texts=texts), *_anchor_forms(dag, known)]:
        for ranks in [{}, shapes] if shapes else [{}]:
            if not form.replaced and not ranks:
                continue
            rebuilt = _rebuilt(dag, form.replaced, ranks)
            if rebuilt is not None:
                made = Candidate(rebuilt.dag, rebuilt.operands, form.texts)
                yield from _with_constant_stages(made)


def _rebuilt(
    dag: ComputeDag,
    replaced: Mapping[Operation, Replacement],
    shapes: Mapping[Operation, tuple[int, ...]],
) -> Rebuilt | None:
    try:
        return rebuild(dag, replaced, shapes)
    except Exception as error:  # tensor expressions refuse in many of TVM's ways
        logger.debug("a form of a kernel that can't be built: %s", error)
        return None


def _with_constant_stages(candidate: Candidate) -> Iterator[Candidate]:
    """The candidate, and its form in which scalar constants are stages if it has any."""
    yield candidate
    replaced: dict[Operation, Replacement] = {}
    for op in candidate.dag.operations:
        if not op.is_placeholder and not op.is_reduction and op.base_name.startswith("T_"):
            replacement = _constant_as_stage(op)
            if replacement is not None:
                replaced[op] = replacement
    rebuilt = _rebuilt(candidate.dag, replaced, {}) if replaced else None
    if rebuilt is not None:
        yield Candidate(rebuilt.dag, _composed(candidate, rebuilt), candidate.texts)


def _composed(candidate: Candidate, rebuilt: Rebuilt) -> tuple[tuple[int, Packing], ...]:
    composed = []
    for index, packing in rebuilt.operands:
        original, before = candidate.operands[index]
        composed.append((original, before.then(*packing.steps)))
    return tuple(composed)


# --- anchors -----------------------------------------------------------------------------


def _anchor_forms(dag: ComputeDag, known: frozenset[int]) -> list[_Form]:
    positions = dict(zip(dag.inputs, dag.input_positions()))
    forms: list[_Form] = []
    for op in dag.operations:
        if op.base_name == "matmul":
            forms += _matmul_forms(op)
        elif op.base_name == "conv2d_nhwc":
            weight = op.producers[-1]
            if weight in positions and positions[weight] in known:
                forms += _winograd_forms(op)
        elif op.base_name in ("group_conv2d_nhwc", "group_conv2d_nchw"):
            forms += _depthwise_forms(op)
    return forms


def _matmul_forms(op: Operation) -> list[_Form]:
    """matmul(x, w) as x times the transposed of what is read, by rows or by batches."""
    left, right = op.producers[0], op.producers[-1]
    rank = len(op.shape)
    if not right.is_placeholder or len(right.shape) != rank or len(left.shape) != rank:
        return []
    if rank not in (2, 3) or (rank == 3 and left.shape[0] != right.shape[0]):
        return []
    packing = Packing((("transpose", [*range(rank - 2), rank - 1, rank - 2]),))

    def build(tensor_of: Callable[[Operation], Any]) -> Any:
        x, y = tensor_of(left), tensor_of(right)
        k = te.reduce_axis((0, left.shape[-1]), "k")
        if rank == 2:
            return te.compute(
                op.shape, lambda i0, i1: te.sum(x[i0, k] * y[i1, k], axis=k), name="T_matmul_NT"
            )
        return te.compute(
            op.shape,
            lambda b, i, j: te.sum(x[b, i, k] * y[b, j, k], axis=k),
            name="T_batch_matmul_NT",
        )

    return [_Form({op: Replacement(build, {right: packing})})]


def _winograd_forms(op: Operation) -> list[_Form]:
    padded, weight = op.producers[0], op.producers[-1]
    if padded.base_name != "pad_temp" or weight.shape[:2] != (KERNEL, KERNEL):
        return []
    data = padded.producers[0]
    in_reach = all(op.shape[dim] == padded.shape[dim] - KERNEL + 1 for dim in (1, 2))
    index = index_of(padded, data)
    front = [offset(padded, index[dim]) for dim in (1, 2)]
    if not in_reach or front[0] is None or front[1] is None:
        return []
    forms = []
    for m in _WINOGRAD_TILES:
        form = WinogradForm(data, weight, (-front[0], -front[1]), op.shape, m)
        forms.append(_Form({op: form.replacement()}, form.texts()))
    return forms


def _depthwise_forms(op: Operation) -> list[_Form]:
    """One channel per group: TOPI's depthwise compute has no loop over it."""
    padded, weight = op.producers[0], op.producers[-1]
    is_nhwc = op.base_name == "group_conv2d_nhwc"
    channel, image = (3, (1, 2)) if is_nhwc else (1, (2, 3))
    kernel = weight.shape[:2] if is_nhwc else weight.shape[2:]
    channels = op.shape[channel]
    if padded.base_name != "pad_temp" or padded.shape[channel] != channels:
        return []
    if not weight.is_placeholder or channels * kernel[0] * kernel[1] != _size(weight.shape):
        return []
    index = index_of(op, padded)
    windows = [axis for axis in op.axes if axis.is_reduction and axis.extent in kernel]
    taps = [axis for axis in windows if axis.name.startswith("r") and axis.name != "rc"]
    steps = [
        (coefficient(op, index[dim], op.axes[dim]), coefficient(op, index[dim], tap))
        for dim, tap in zip(image, taps)
    ]
    if len(steps) != 2 or any(None in pair for pair in steps):
        return []
    packing = Packing((("reshape", [*kernel, channels, 1]),)) if is_nhwc else Packing()
    if weight.shape == (*kernel, channels, 1):
        packing = Packing()

    def build(tensor_of: Callable[[Operation], Any]) -> Any:
        producer = padded.producers[0]
        before = compute(padded, {producer: tensor_of(producer)}, {}, "PaddedInput")
        filters = tensor_of(weight)
        di, dj = te.reduce_axis((0, kernel[0]), "di"), te.reduce_axis((0, kernel[1]), "dj")
        (down, dilation_h), (across, dilation_w) = steps

        def rows(i: Any) -> Any:
            return i * down + di * dilation_h

        def columns(j: Any) -> Any:
            return j * across + dj * dilation_w

        def nhwc(b: Any, i: Any, j: Any, c: Any) -> Any:
            return te.sum(before[b, rows(i), columns(j), c] * filters[di, dj, c, 0], [di, dj])

        def nchw(b: Any, c: Any, i: Any, j: Any) -> Any:
            return te.sum(before[b, c, rows(i), columns(j)] * filters[c, 0, di, dj], [di, dj])

        return te.compute(op.shape, nhwc if is_nhwc else nchw, name="DepthwiseConv2d")

    return [_Form({op: Replacement(build, {weight: packing})})]


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


# --- operands and constants --------------------------------------------------------------


def _full_ranks(dag: ComputeDag) -> dict[Operation, tuple[int, ...]]:
    """Broadcast operands of fewer dimensions than their reader, with leading ones added."""
    shapes: dict[Operation, tuple[int, ...]] = {}
    for op in dag.operations:
        if op.is_placeholder or op.is_reduction or not op.base_name.startswith("T_"):
            continue
        for producer in op.producers:
            missing = len(op.shape) - len(producer.shape)
            if producer.is_placeholder and producer.shape and missing > 0:
                shapes[producer] = (1,) * missing + producer.shape
    return shapes


def _constant_as_stage(op: Operation) -> Replacement | None:
    """A binary operation with a scalar: Relay made the scalar a compute of its own."""
    value = op.store.value
    sides = [getattr(value, name, None) for name in ("a", "b")]
    at = [i for i, side in enumerate(sides) if isinstance(side, tirx.FloatImm)]
    if len(at) != 1:
        return None
    number = sides[at[0]]

    def build(tensor_of: Callable[[Operation], Any]) -> Any:
        constant = te.compute((), lambda: number, name="compile_engine_const")
        producers = {producer: tensor_of(producer) for producer in op.producers}

        def body(variables: Mapping[Any, Any]) -> Any:
            other = translate(sides[1 - at[0]], variables, producers, {})
            operands = (constant(), other) if at[0] == 0 else (other, constant())
            return type(value)(*operands)

        return compute(op, producers, {}, op.name, body)

    return Replacement(build)


# --- pooling -----------------------------------------------------------------------------


def _pooling_texts(dag: ComputeDag) -> dict[str, str]:
    """What TVM 0.18 printed for the divisors of average pooling, which TVM 0.27 simplifies."""
    texts: dict[str, str] = {}
    for op in dag.operations:
        text = None
        if op.base_name == "adaptive_pool_avg":
            text = _adaptive_text(op)
        elif op.base_name == "pool_avg":
            text = _average_text(op)
        if text is not None:
            texts[op.base_name] = text
    return texts


def _adaptive_text(op: Operation) -> str | None:
    """Of pooling to one row and one column."""
    total = op.producers[0]
    windows = _windows(total)
    if any(op.shape[dim] != 1 for dim in windows):
        return None
    factors = []
    for dim, window in windows.items():
        end = f"((ax{dim} + 1)*{window})"
        factors.append(f"float32((select((bool)1, {end}, ({end} + 1)) - (ax{dim}*{window})))")
    divisor = f"({'*'.join(factors)})" if len(factors) > 1 else factors[0]
    return f"= (@[{_own_indices(op)}]/{divisor})"


def _average_text(op: Operation) -> str | None:
    """Of pooling whose windows at the edges count only what lies inside."""
    total = op.producers[0]
    padded = total.producers[0]
    windows = _windows(total)
    if padded.base_name != "pad_temp" or len(windows) != 2:
        return None
    data = padded.producers[0]
    index, from_data = index_of(total, padded), index_of(padded, data)
    factors = []
    for dim, window in windows.items():
        stride = coefficient(total, index[dim], total.axes[dim])
        before = offset(padded, from_data[dim])
        if stride is None or before is None:
            return None
        start = f"ax{dim}" if stride == 1 else f"(ax{dim}*{stride})"
        start = f"({start} - {-before})" if before else start
        last, end = data.shape[dim] - 1, f"({start} + {window - 1})"
        factors.append(f"((min({end}, {last}) - ({start} + max((0 - {start}), 0))) + 1)")
    return f"= (@[{_own_indices(op)}]/float32(max(({'*'.join(factors)}), 1)))"


def _windows(total: Operation) -> dict[int, int]:
    """Extent of the window by the dimension in whose index it runs."""
    index = index_of(total, total.producers[0])
    return {
        dim: axis.extent
        for axis in total.axes
        if axis.is_reduction
        for dim, each in enumerate(index)
        if coefficient(total, each, axis)
    }


def _own_indices(op: Operation) -> str:
    return ", ".join(f"ax{i}" for i in range(len(op.shape)))
