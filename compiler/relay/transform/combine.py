"""CombineParallelConv2D, CombineParallelDense, CombineParallelBatchMatmul, BatchingOps.

Before: several operators of one kind read one tensor.  After: one operator with the weights
behind each other, and a slice of its result for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relax

from .. import dialect
from ..infer import infer_type
from ..nest import handle, operands, post_order, with_operands
from .base import body_wise
from .build import again, is_op, op, shape, tuple_of


@dataclass(frozen=True)
class _Kind:
    """One operator that can be combined.

    `signature` is equal for calls that fit each other, `weight_axis` and `output_axis` where the
    weights and the results lie behind each other; `size` names the attribute with that extent.
    """

    name: str
    signature: Callable[[relax.Call], Any]
    weight_axis: Callable[[relax.Call], int]
    output_axis: Callable[[relax.Call], int]
    size: str = ""


def CombineParallelConv2D(min_num_branches: int = 3) -> Any:
    """Convolutions of one input with the same attributes, groups 1, become one."""
    return _pass("CombineParallelConv2d", _CONV2D, min_num_branches)


def CombineParallelDense(min_num_branches: int = 3, to_batch: bool = True) -> Any:
    """Dense layers of one input become one: a batch_matmul, or a wider dense layer.

    Parameters
    ----------
    to_batch : bool
        A batch_matmul of the weights, which must have one shape.
    """
    if to_batch:
        return body_wise(
            "CombineParallelDense", 4, lambda body: _batched_dense(body, min_num_branches)
        )
    return _pass("CombineParallelDense", _DENSE, min_num_branches)


def CombineParallelBatchMatmul(min_num_branches: int = 3) -> Any:
    """Batched matrix products of one left side become one."""
    return _pass("CombineParallelBatchMatmul", _BATCH_MATMUL, min_num_branches)


def BatchingOps() -> Any:
    """CombineParallelDense and CombineParallelBatchMatmul, one after the other."""

    def change(body: relax.Expr) -> relax.Expr:
        return _combined(_batched_dense(body, 3), _BATCH_MATMUL, 3)

    return body_wise("BatchingOps", 4, change)


def _pass(name: str, kind: _Kind, least: int) -> Any:
    return body_wise(name, 4, lambda body: _combined(body, kind, least))


def _combined(body: relax.Expr, kind: _Kind, least: int) -> relax.Expr:
    groups = _groups(body, kind, least)
    if not groups:
        return body

    def join(members: list[relax.Call], data: relax.Expr, rights: list[relax.Expr]) -> list[Any]:
        first = members[0]
        axis = kind.output_axis(first)
        weights = op("concatenate", tuple_of(rights), axis=kind.weight_axis(first))
        extents = [int(member.ty.shape.values[axis]) for member in members]
        changes = {kind.size: sum(extents)} if kind.size else {}
        whole = again(first, [data, weights], **changes)
        parts, start = [], 0
        for extent in extents:
            parts.append(
                op(
                    "strided_slice",
                    whole,
                    begin=[0] * axis + [start],
                    end=[-1] * axis + [extent],
                    strides=[1] * (axis + 1),
                    slice_mode="size",
                )
            )
            start += extent
        return parts

    return _joined(body, groups, join)


def _batched_dense(body: relax.Expr, least: int) -> relax.Expr:
    def signature(call: relax.Call) -> Any:
        return str(call.attrs), tuple(shape(call.args[1]) or [])

    kind = _Kind("nn.dense", signature, lambda _: 0, lambda _: 1)
    groups = _groups(body, kind, least)

    def join(members: list[relax.Call], data: relax.Expr, rights: list[relax.Expr]) -> list[Any]:
        count = len(members)
        lefts = op("stack", tuple_of([data] * count), axis=0)
        weights = op("stack", tuple_of(rights), axis=0)
        out = dialect.attributes(members[0])["out_dtype"]
        whole = op(
            "nn.batch_matmul", lefts, weights, out_dtype=out, transpose_a=False, transpose_b=True
        )
        parts = op("split", whole, indices_or_sections=count, axis=0)
        return [
            op("squeeze", infer_type(relax.TupleGetItem(parts, place)), axis=[0])
            for place in range(count)
        ]

    return _joined(body, groups, join) if groups else body


def _groups(body: relax.Expr, kind: _Kind, least: int) -> list[list[relax.Call]]:
    """Calls of the kind by their input and signature; the inputs do not depend on the calls."""
    found: dict[Any, list[relax.Call]] = {}
    for node in post_order(body):
        if not is_op(node, kind.name) or shape(node) is None:
            continue
        signature = kind.signature(node)
        if signature is not None:
            key = (handle(node.args[0]), signature)
            if not any(_reads(node.args[1], other) for other in found.get(key, [])):
                found.setdefault(key, []).append(node)
    return [members for members in found.values() if len(members) >= max(least, 2)]


def _reads(expr: relax.Expr, target: relax.Expr) -> bool:
    return any(node.same_as(target) for node in post_order(expr))


def _joined(
    body: relax.Expr,
    groups: list[list[relax.Call]],
    join: Callable[[list[relax.Call], relax.Expr, list[relax.Expr]], list[Any]],
) -> relax.Expr:
    """The body with each group computed at once, where the first of it was computed."""
    group_of = {handle(member): members for members in groups for member in members}
    made: dict[int, relax.Expr] = {}

    def build(root: relax.Expr) -> relax.Expr:
        for node in post_order(root):
            key = handle(node)
            if key in made:
                continue
            members = group_of.get(key)
            if members is None:
                made[key] = with_operands(node, [made[handle(each)] for each in operands(node)])
                continue
            data = build(node.args[0])
            rights = [build(member.args[1]) for member in members]
            for member, part in zip(members, join(members, data, rights)):
                made[handle(member)] = part
        return made[handle(root)]

    return build(body)


def _conv_signature(call: relax.Call) -> Any:
    attrs = dialect.attributes(call)
    if int(attrs["groups"]) != 1:
        return None
    weight = list(shape(call.args[1]) or [])
    if not weight:
        return None
    del weight[str(attrs["kernel_layout"]).index("O")]
    attrs.pop("channels")
    return str(sorted(attrs.items(), key=lambda item: item[0])), tuple(weight)


def _output_channels(call: relax.Call) -> int:
    layout = str(call.attrs["out_layout"] or call.attrs["data_layout"])
    return layout.index("C")


def _dense_signature(call: relax.Call) -> Any:
    return str(dialect.attributes(call)["out_dtype"])


def _matmul_signature(call: relax.Call) -> Any:
    attrs = dialect.attributes(call)
    right = shape(call.args[1])
    if right is None or not attrs["transpose_b"] or right[0] != call.ty.shape.values[0]:
        return None
    return str(sorted(attrs.items(), key=lambda item: item[0])), right[0], right[2]


_CONV2D = _Kind(
    "nn.conv2d",
    _conv_signature,
    lambda call: str(call.attrs["kernel_layout"]).index("O"),
    _output_channels,
    "channels",
)
_DENSE = _Kind("nn.dense", _dense_signature, lambda _: 0, lambda call: call.ty.ndim - 1, "units")
_BATCH_MATMUL = _Kind("nn.batch_matmul", _matmul_signature, lambda _: 1, lambda _: 2)
