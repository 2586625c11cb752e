"""CombineParallelConv2D, CombineParallelDense, CombineParallelBatchMatmul, BatchingOps.

Before: several operators of one kind take the same tensor.  After: one operator with concatenated
weights, and a slice of its result for each. Elementwise operators that follow in every branch,
such as a bias_add, are also combined, with concatenated operands; the slices come last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relax

from .. import dialect
from ..nested_expressions import handle, operands, post_order, with_operands
from ..op.op_def import BROADCAST
from ..type_infer import infer_type
from .base import body_wise
from .build import again, dtype, is_op, op, shape, tuple_of
from .fuse_ops import pattern_of

_Branch = list[relax.Call]
"""Operator to combine, followed by its chain of elementwise consumers."""


@dataclass(frozen=True)
class _Kind:
    """An operator that can be combined."""

    name: str
    signature: Callable[[relax.Call], Any]  # calls with equal signatures are compatible
    weight_axis: Callable[[relax.Call], int]  # weights are concatenated along it
    output_axis: Callable[[relax.Call], int]  # results are concatenated along it
    size: str = ""  # attribute with that extent
    repeats: bool = False  # an operand of a later operator with extent 1 there is repeated
    axis_from_end: bool = False  # a later operator's axis is written as -1

    def operand_axis(self, first: relax.Call, ndim: int) -> int:
        """Axis of a broadcast operand of this rank that corresponds to the output axis."""
        return self.output_axis(first) - first.ty.ndim + ndim

    def fits(self, branches: list[_Branch], operands_: list[relax.Expr]) -> bool:
        """Whether the operands of an operator that follows in all branches can be concatenated."""
        shapes = [shape(each) for each in operands_]
        first = branches[0][0]
        if None in shapes or len({(dtype(each), each.ty.ndim) for each in operands_}) != 1:
            return False
        axis = self.operand_axis(first, len(shapes[0] or ()))
        if axis < 0:
            return self.repeats and shapes[0] == []
        for branch, extents in zip(branches, shapes):
            whole = int(branch[0].ty.shape.values[self.output_axis(first)])
            assert extents is not None
            if extents.pop(axis) not in ((whole, 1) if self.repeats else (whole,)):
                return False
        return all(extents == shapes[0] for extents in shapes)

    def merged(self, branches: list[_Branch], operands_: list[relax.Expr]) -> relax.Expr:
        """Concatenate these operands."""
        first = branches[0][0]
        axis = max(self.operand_axis(first, operands_[0].ty.ndim), 0)
        parts = []
        for branch, part in zip(branches, operands_):
            whole = int(branch[0].ty.shape.values[self.output_axis(first)])
            if part.ty.ndim == 0:
                part = op("expand_dims", part, axis=-1, num_newaxis=1)
            if (shape(part) or [])[axis] != whole:
                part = op("repeat", part, repeats=whole, axis=axis)
            parts.append(part)
        return op("concatenate", tuple_of(parts), axis=-1 if self.axis_from_end else axis)


def CombineParallelConv2D(min_num_branches: int = 3) -> Any:
    """Combine convolutions with the same input and attributes and groups 1."""
    return _pass("CombineParallelConv2d", _CONV2D, min_num_branches)


def CombineParallelDense(min_num_branches: int = 3, to_batch: bool = True) -> Any:
    """Combine dense layers with the same input into a batch_matmul or a wider dense layer.

    `to_batch`: create a batch_matmul; the weights must have the same shape.
    """
    if to_batch:
        return body_wise(
            "CombineParallelDense", 4, lambda body: _batched_dense(body, min_num_branches)
        )
    return _pass("CombineParallelDense", _DENSE, min_num_branches)


def CombineParallelBatchMatmul(min_num_branches: int = 3) -> Any:
    """Combine batch_matmuls with the same left operand."""
    return _pass("CombineParallelBatchMatmul", _BATCH_MATMUL, min_num_branches)


def BatchingOps() -> Any:
    """CombineParallelDense, then CombineParallelBatchMatmul."""

    def change(body: relax.Expr) -> relax.Expr:
        return _combined(_batched_dense(body, 3), _BATCH_MATMUL, 3)

    return body_wise("BatchingOps", 4, change)


def _pass(name: str, kind: _Kind, least: int) -> Any:
    return body_wise(name, 4, lambda body: _combined(body, kind, least))


def _combined(body: relax.Expr, kind: _Kind, least: int) -> relax.Expr:
    groups = _groups(body, kind, least)
    if not groups:
        return body

    def join(members: list[relax.Call], data: relax.Expr, rights: list[relax.Expr]) -> relax.Expr:
        first = members[0]
        weights = op("concatenate", tuple_of(rights), axis=kind.weight_axis(first))
        extents = _extents(kind, members)
        changes = {kind.size: sum(extents)} if kind.size else {}
        return again(first, [data, weights], **changes)

    def divide(members: list[relax.Call], whole: relax.Expr) -> list[relax.Expr]:
        axis = kind.operand_axis(members[0], whole.ty.ndim)
        extents = _extents(kind, members)
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

    return _joined(body, groups, kind, join, divide)


def _extents(kind: _Kind, members: list[relax.Call]) -> list[int]:
    axis = kind.output_axis(members[0])
    return [int(member.ty.shape.values[axis]) for member in members]


class _Stacked(_Kind):
    """Combine dense layers into one batch_matmul with a stacked result."""

    def fits(self, branches: list[_Branch], operands_: list[relax.Expr]) -> bool:
        shapes = [shape(each) for each in operands_]
        one = len({dtype(each) for each in operands_}) == 1
        alike = all(each == shapes[0] for each in shapes)
        return one and alike and 1 <= len(shapes[0] or ()) <= branches[0][0].ty.ndim

    def merged(self, branches: list[_Branch], operands_: list[relax.Expr]) -> relax.Expr:
        if operands_[0].ty.ndim == 1:
            operands_ = [op("expand_dims", each, axis=0, num_newaxis=1) for each in operands_]
        return op("stack", tuple_of(operands_), axis=0)


def _batched_dense(body: relax.Expr, least: int) -> relax.Expr:
    def signature(call: relax.Call) -> Any:
        return str(call.attrs), tuple(shape(call.args[1]) or [])

    kind = _Stacked("nn.dense", signature, lambda _: 0, lambda _: 1)
    groups = _groups(body, kind, least)

    def join(members: list[relax.Call], data: relax.Expr, rights: list[relax.Expr]) -> relax.Expr:
        lefts = op("stack", tuple_of([data] * len(members)), axis=0)
        weights = op("stack", tuple_of(rights), axis=0)
        out = dialect.attributes(members[0])["out_dtype"]
        return op(
            "nn.batch_matmul", lefts, weights, out_dtype=out, transpose_a=False, transpose_b=True
        )

    def divide(members: list[relax.Call], whole: relax.Expr) -> list[relax.Expr]:
        count = len(members)
        parts = op("split", whole, indices_or_sections=count, axis=0)
        return [
            op("squeeze", infer_type(relax.TupleGetItem(parts, place)), axis=[0])
            for place in range(count)
        ]

    return _joined(body, groups, kind, join, divide) if groups else body


def _groups(body: relax.Expr, kind: _Kind, least: int) -> list[list[_Branch]]:
    """Independent branches of equal length, from calls of equal signature on the same input."""
    found: dict[Any, list[relax.Call]] = {}
    for node in post_order(body):
        if not is_op(node, kind.name) or shape(node) is None:
            continue
        signature = kind.signature(node)
        if signature is not None:
            key = (handle(node.args[0]), signature)
            if not any(_reads(node.args[1], other) for other in found.get(key, [])):
                found.setdefault(key, []).append(node)
    groups = [members for members in found.values() if len(members) >= max(least, 2)]
    readers: dict[int, list[relax.Expr]] = {}
    for node in post_order(body) if groups else ():
        for operand in operands(node):
            readers.setdefault(handle(operand), []).append(node)
    return [_branches(kind, members, readers) for members in groups]


def _branches(
    kind: _Kind, members: list[relax.Call], readers: dict[int, list[relax.Expr]]
) -> list[_Branch]:
    """Calls with their following operators that can be combined."""
    branches = [[member] for member in members]
    while True:
        level = [_only_reader(branch[-1], readers) for branch in branches]
        if None in level or not _is_common(kind, branches, level, members):
            return branches
        for branch, call in zip(branches, level):
            branch.append(call)


def _only_reader(call: relax.Call, readers: dict[int, list[relax.Expr]]) -> relax.Call | None:
    """Only consumer of a call if it is elementwise; its result may have more leading axes."""
    found, extents = readers.get(handle(call), []), shape(call)
    if len(found) != 1 or not dialect.is_relay(found[0]) or pattern_of(found[0]) > BROADCAST:
        return None
    read = shape(found[0])
    return found[0] if extents and read and read[-len(extents) :] == extents else None


def _is_common(
    kind: _Kind, branches: list[_Branch], level: list[Any], members: list[relax.Call]
) -> bool:
    """Whether the branches continue with the same operator and compatible other operands."""
    first = level[0]
    place = _place(first, branches[0][-1])
    for branch, call in zip(branches, level):
        if not is_op(call, dialect.relay_name(first)) or str(call.attrs) != str(first.attrs):
            return False
        if len(call.args) != len(first.args) or _place(call, branch[-1]) != place:
            return False
    others = [[call.args[i] for call in level] for i in range(len(first.args)) if i != place]
    return all(
        kind.fits(branches, operands_)
        and not any(_reads(each, member) for each in operands_ for member in members)
        for operands_ in others
    )


def _place(call: relax.Call, operand: relax.Expr) -> int:
    return next(i for i, each in enumerate(call.args) if each.same_as(operand))


def _reads(expr: relax.Expr, target: relax.Expr) -> bool:
    return any(node.same_as(target) for node in post_order(expr))


def _joined(
    body: relax.Expr,
    groups: list[list[_Branch]],
    kind: _Kind,
    join: Callable[[list[relax.Call], relax.Expr, list[relax.Expr]], relax.Expr],
    divide: Callable[[list[relax.Call], relax.Expr], list[relax.Expr]],
) -> relax.Expr:
    """Rewrite the body, computing each group at the position of its first call."""
    group_of = {handle(branch[-1]): branches for branches in groups for branch in branches}
    made: dict[int, relax.Expr] = {}

    def build(root: relax.Expr) -> relax.Expr:
        for node in post_order(root):
            key = handle(node)
            if key in made:
                continue
            branches = group_of.get(key)
            if branches is None:
                made[key] = with_operands(node, [made[handle(each)] for each in operands(node)])
                continue
            members = [branch[0] for branch in branches]
            rights = [build(member.args[1]) for member in members]
            whole = join(members, build(members[0].args[0]), rights)
            for depth in range(1, len(branches[0])):
                level = [branch[depth] for branch in branches]
                place = _place(level[0], branches[0][depth - 1])
                merged = [
                    whole
                    if i == place
                    else kind.merged(branches, [build(call.args[i]) for call in level])
                    for i in range(len(level[0].args))
                ]
                whole = again(level[0], merged)
            for branch, part in zip(branches, divide(members, whole)):
                made[handle(branch[-1])] = part
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
_DENSE = _Kind(
    "nn.dense", _dense_signature, lambda _: 0, lambda call: call.ty.ndim - 1, "units", repeats=True
)
_BATCH_MATMUL = _Kind(
    "nn.batch_matmul", _matmul_signature, lambda _: 1, lambda _: 2, axis_from_end=True
)
