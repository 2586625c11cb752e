"""Compute variants that Ansor may have tuned for a kernel of a module.

A kernel of today's module is TOPI's plain compute of today's operators. Older TVM versions gave
Ansor other variants of the same operators:

* a dense layer multiplied with the transposed weight, a batched product likewise;
* a 3x3 convolution could be Winograd's, its weight transformed beforehand;
* a depthwise convolution had a separate compute, without the reduction over one channel;
* operands that are broadcast had other numbers of leading dimensions of extent 1, which for
  non-constant biases a separate stage added;
* scalar constants were stages of rank 0.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tvm import te, tirx, topi

from .dag import ComputeDag, Operation
from .dag_to_primfunc import Candidate, Replacement, compute, rebuild, translate, unchanged
from .index_coefficients import coefficient, index_of, offset
from .legacy_printer import texts_of_era
from .packing import Packing
from .winograd import KERNEL, WinogradForm

logger = logging.getLogger("baton.auto_scheduler")

_WINOGRAD_TILES = (4, 2)


# Replacements in the kernel's DAG, and the printed texts of their stages
_Form = tuple[Mapping[Operation, Replacement], Mapping[str, str]]


def candidates(dag: ComputeDag, known: frozenset[int]) -> Iterator[Candidate]:
    """Forms of a kernel, the plain one first; the values of `known` are known at build time."""
    texts = texts_of_era(dag)
    yield from _with_constant_stages(replace(unchanged(dag), texts=texts))
    shapes = _full_ranks(dag)
    variants: list[tuple[Mapping[Operation, Replacement], Mapping[Operation, tuple[int, ...]]]]
    variants = [({}, {})]
    if shapes:
        variants.append(({}, shapes))
    positions = dict(zip(dag.inputs, dag.input_positions()))
    open_ones = {op: shape for op, shape in shapes.items() if positions[op] not in known}
    if open_ones:
        variants.append((_expanded(dag, open_ones), {}))
    for anchors, anchor_texts in [({}, texts), *_anchor_forms(dag, known)]:
        for expanded, ranks in variants:
            replaced = {**expanded, **anchors}
            rebuilt = _rebuilt(dag, replaced, ranks) if replaced or ranks else None
            if rebuilt is not None:
                yield from _with_constant_stages(replace(rebuilt, texts=anchor_texts))


def _rebuilt(
    dag: ComputeDag,
    replaced: Mapping[Operation, Replacement],
    shapes: Mapping[Operation, tuple[int, ...]],
) -> Candidate | None:
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
        before = [(*candidate.operands[index], packing) for index, packing in rebuilt.operands]
        operands = tuple((index, first.then(*then.steps)) for index, first, then in before)
        yield Candidate(rebuilt.dag, operands, candidate.texts)


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
    """matmul(x, w) on the transposed w, by rows or batches; TOPI reads a single batch at 0."""
    left, right = op.producers[0], op.producers[-1]
    rank = len(op.shape)
    if not right.is_placeholder or len(right.shape) != rank or len(left.shape) != rank:
        return []
    if rank not in (2, 3) or (rank == 3 and left.shape[0] != right.shape[0]):
        return []
    packing = Packing((("transpose", [*range(rank - 2), rank - 1, rank - 2]),))

    def dense(tensor_of: Callable[[Operation], Any]) -> Any:
        x, y = tensor_of(left), tensor_of(right)
        k = te.reduce_axis((0, left.shape[-1]), "k")
        return te.compute(
            op.shape, lambda i0, i1: te.sum(x[i0, k] * y[i1, k], axis=k), name="T_matmul_NT"
        )

    def batched(transposed: bool) -> Callable[[Callable[[Operation], Any]], Any]:
        def build(tensor_of: Callable[[Operation], Any]) -> Any:
            x, y = tensor_of(left), tensor_of(right)
            k = te.reduce_axis((0, left.shape[-1]), "k")

            def product(b: Any, i: Any, j: Any) -> Any:
                batch = 0 if op.shape[0] == 1 else b
                other = y[batch, j, k] if transposed else y[batch, k, j]
                return te.sum(x[batch, i, k] * other, axis=k)

            name = "T_batch_matmul_NT" if transposed else "T_batch_matmul_NN"
            return te.compute(op.shape, product, name=name)

        return build

    if rank == 2:
        return [({op: Replacement(dense, {right: packing})}, {})]
    forms: list[_Form] = [({op: Replacement(batched(True), {right: packing})}, {})]
    if op.shape[0] == 1:
        forms.append(({op: Replacement(batched(False))}, {}))
    return forms


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
    padding = (-front[0], -front[1])
    forms = [WinogradForm(data, weight, padding, op.shape, m) for m in _WINOGRAD_TILES]
    return [({op: form.replacement()}, form.texts()) for form in forms]


def _depthwise_forms(op: Operation) -> list[_Form]:
    """One channel per group: TOPI's depthwise compute has no loop over it."""
    padded, weight = op.producers[0], op.producers[-1]
    is_nhwc = op.base_name == "group_conv2d_nhwc"
    channel, image = (3, (1, 2)) if is_nhwc else (1, (2, 3))
    kernel = weight.shape[:2] if is_nhwc else weight.shape[2:]
    channels = op.shape[channel]
    if padded.base_name != "pad_temp" or padded.shape[channel] != channels:
        return []
    if not weight.is_placeholder or channels * kernel[0] * kernel[1] != math.prod(weight.shape):
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

    return [({op: Replacement(build, {weight: packing})}, {})]


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


def _expanded(
    dag: ComputeDag, shapes: Mapping[Operation, tuple[int, ...]]
) -> dict[Operation, Replacement]:
    """Readers of operands of fewer dimensions, with a stage that adds the leading ones."""

    def expanding(op: Operation) -> Replacement:
        def build(tensor_of: Callable[[Operation], Any]) -> Any:
            tensors = {producer: tensor_of(producer) for producer in op.producers}
            for producer in op.producers:
                if producer in shapes:
                    missing = len(shapes[producer]) - len(producer.shape)
                    tensors[producer] = topi.expand_dims(tensors[producer], 0, missing)
            return compute(op, tensors, shapes, op.name)

        return Replacement(build)

    return {
        op: expanding(op)
        for op in dag.operations
        if op.base_name.startswith("T_") and any(p in shapes for p in op.producers)
    }


def _constant_as_stage(op: Operation) -> Replacement | None:
    """Binary operation with a scalar, which Relay made a separate compute."""
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
