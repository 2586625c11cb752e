"""FoldScaleAxis: multiplications along the channels become part of the weights.

Forward, a scale of a convolution's input goes through relu and additions into the weight:

    conv2d(relu(x * s), w) -> conv2d(relu(x), w * s)            s > 0

Backward, a scale of its result does:

    relu(conv2d(x, w) + b) * s -> relu(conv2d(x, w * s) + b * s)    s > 0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import relax

from .. import dialect
from ..nest import call_of, handle, operands, post_order, with_operands
from ..op import registry
from ..op.layout_string import Layout, is_one
from .base import body_wise
from .build import again, array, is_op, op
from .constants import folded_constants

_CONVOLUTIONS = ("nn.conv2d", "nn.conv3d")


def BackwardFoldScaleAxis() -> Any:
    """A scale of a convolution's or dense layer's result is multiplied into its weight."""
    return body_wise("BackwardFoldScaleAxis", 3, lambda body: _Backward(body).run())


def ForwardFoldScaleAxis() -> Any:
    """A scale of a convolution's or dense layer's input is multiplied into its weight."""
    return body_wise("ForwardFoldScaleAxis", 3, lambda body: _Forward(body).run())


def FoldScaleAxis() -> Any:
    """BackwardFoldScaleAxis, then ForwardFoldScaleAxis, then FoldConstant."""

    def change(body: relax.Expr) -> relax.Expr:
        made = _Forward(_Backward(body).run()).run()
        return body if made.same_as(body) else folded_constants(made)

    return body_wise("FoldScaleAxis", 3, change)


@dataclass(frozen=True)
class Scaling:
    """What scale a value can take: along which axes, and whether it must be positive."""

    axes: tuple[int, ...]
    positive: bool = False


# ---------------------------------------------------------------- forward


@dataclass(frozen=True)
class Scaled:
    """A value that is still to be multiplied by a scale along some axes."""

    value: relax.Expr
    axes: tuple[int, ...]
    scale: relax.Expr


class _Forward:
    def __init__(self, body: relax.Expr) -> None:
        self.body = body
        self.wanted: dict[int, Scaling | None] = {}
        self.made: dict[int, Any] = {}

    def run(self) -> relax.Expr:
        nodes = list(post_order(self.body))
        self._want(self.body, None)
        for node in reversed(nodes):
            found = self._asked(node)
            for each, scaling in zip(operands(node), found):
                self._want(each, scaling)
        if not any(self.wanted.values()):
            return self.body
        for node in nodes:
            self.made[handle(node)] = self._rewritten(node)
        return self._plain(self.body)

    def _want(self, node: relax.Expr, scaling: Scaling | None) -> None:
        key = handle(node)
        self.wanted[key] = _both(self.wanted[key], scaling) if key in self.wanted else scaling

    def _asked(self, node: relax.Expr) -> Sequence[Scaling | None]:
        """What a node can take of its operands, given what can be taken of its result."""
        count = len(operands(node))
        wanted = self.wanted.get(handle(node))
        if is_op(node, *_CONVOLUTIONS):
            return (_data_scaling(node), None)
        if is_op(node, "nn.dense") and node.args[0].ty.ndim == 2:
            return (Scaling((1,)), None)
        if wanted is not None and is_op(node, "nn.relu", "nn.leaky_relu"):
            return (Scaling(wanted.axes, True),)
        if wanted is not None and is_op(node, "add", "subtract"):
            left, right = node.args
            if _matches(left, right, wanted.axes):
                return (wanted, None)
            if _matches(right, left, wanted.axes):
                return (None, wanted)
        return (None,) * count

    def _plain(self, node: relax.Expr) -> relax.Expr:
        made = self.made[handle(node)]
        if isinstance(made, Scaled):
            scale = _along(made.scale, made.value, made.axes)
            assert scale is not None
            return op("multiply", made.value, scale)
        return made

    def _rewritten(self, node: relax.Expr) -> Any:
        below = [self.made[handle(each)] for each in operands(node)]
        rule = _FORWARD.get(dialect.relay_name(node)) if isinstance(node, relax.Call) else None
        if rule is not None:
            made = rule(node, below, self.wanted.get(handle(node)))
            if made is not None:
                return made
        return _rebuilt(node, [self._plain(each) for each in operands(node)])


def _forward_relu(call: relax.Call, args: list[Any], _wanted: Scaling | None) -> Any:
    data = args[0]
    if not isinstance(data, Scaled):
        return None
    return Scaled(again(call, [data.value]), data.axes, data.scale)


def _forward_sum(call: relax.Call, args: list[Any], _wanted: Scaling | None) -> Any:
    for place, other in ((0, 1), (1, 0)):
        scaled = args[place]
        if not isinstance(scaled, Scaled) or isinstance(args[other], Scaled):
            continue
        scale = _along(scaled.scale, call.args[place], scaled.axes)
        if scale is None:
            return None
        made = [None, None]
        made[place], made[other] = scaled.value, op("divide", args[other], scale)
        return Scaled(again(call, made), scaled.axes, scaled.scale)
    return None


def _forward_product(_call: relax.Call, args: list[Any], wanted: Scaling | None) -> Any:
    if wanted is None or any(isinstance(each, Scaled) for each in args):
        return None
    for value, scale in ((args[0], args[1]), (args[1], args[0])):
        vector = _vector(value, scale, wanted.axes)
        if vector is not None and (not wanted.positive or _is_positive(vector)):
            return Scaled(value, wanted.axes, vector)
    return None


def _forward_convolution(call: relax.Call, args: list[Any], _wanted: Scaling | None) -> Any:
    data, weight = args
    if not isinstance(data, Scaled) or isinstance(weight, Scaled):
        return None
    letter = "O" if _is_depthwise(call) else "I"
    made = _scaled_weight(call, weight, data.scale, letter)
    return None if made is None else again(call, [data.value, made])


def _forward_dense(call: relax.Call, args: list[Any], _wanted: Scaling | None) -> Any:
    data, weight = args
    if not isinstance(data, Scaled) or isinstance(weight, Scaled):
        return None
    return again(call, [data.value, op("multiply", weight, data.scale)])


_FORWARD: dict[str, Callable[[relax.Call, list[Any], Scaling | None], Any]] = {
    **dict.fromkeys(("nn.relu", "nn.leaky_relu"), _forward_relu),
    **dict.fromkeys(("add", "subtract"), _forward_sum),
    "multiply": _forward_product,
    **dict.fromkeys(_CONVOLUTIONS, _forward_convolution),
    "nn.dense": _forward_dense,
}


# ---------------------------------------------------------------- backward


class _Backward:
    def __init__(self, body: relax.Expr) -> None:
        self.body = body
        self.taking: dict[int, Scaling] = {}
        self.made: dict[int, relax.Expr] = {}

    def run(self) -> relax.Expr:
        nodes = list(post_order(self.body))
        readers = _readers(nodes, self.body)
        for node in nodes:
            found = self._takes(node) if readers[handle(node)] == 1 else None
            if found is not None:
                self.taking[handle(node)] = found
        if not self.taking:
            return self.body
        for node in nodes:
            self.made[handle(node)] = self._rewritten(node)
        return self.made[handle(self.body)]

    def _takes(self, node: relax.Expr) -> Scaling | None:
        """What scale of its result a node can take."""
        below = [self.taking.get(handle(each)) for each in operands(node)]
        if is_op(node, *_CONVOLUTIONS):
            return _result_scaling(node)
        if is_op(node, "nn.dense") and node.ty.ndim == 2:
            return Scaling((1,))
        if is_op(node, "nn.relu", "nn.leaky_relu") and below[0] is not None:
            return Scaling(below[0].axes, True)
        if is_op(node, "nn.bias_add") and below[0] is not None:
            axis = int(node.attrs["axis"]) % node.ty.ndim
            return below[0] if below[0].axes == (axis,) else None
        if is_op(node, "add", "subtract"):
            left, right = node.args
            if below[0] is not None and _matches(left, right, below[0].axes):
                return below[0]
            if below[1] is not None and _matches(right, left, below[1].axes):
                return below[1]
            both = _same_shape(left, right) and [each.axes for each in below if each is not None]
            if both and len(both) == 2 and both[0] == both[1]:
                return below[0]
        return None

    def _rewritten(self, node: relax.Expr) -> relax.Expr:
        if is_op(node, "multiply"):
            for place, other in ((0, 1), (1, 0)):
                scaling = self.taking.get(handle(node.args[place]))
                if scaling is None:
                    continue
                scale = _vector(node.args[place], node.args[other], scaling.axes)
                if scale is not None and (not scaling.positive or _is_positive(scale)):
                    folded = self._scaled(node.args[place], scaling, scale)
                    if folded is not None:
                        return folded
                break
        return _rebuilt(node, [self.made[handle(each)] for each in operands(node)])

    def _scaled(self, node: relax.Expr, scaling: Scaling, scale: relax.Expr) -> relax.Expr | None:
        """The node times a scale, the scale inside; None if it can't go there."""
        args = [self.made[handle(each)] for each in operands(node)]
        if is_op(node, *_CONVOLUTIONS):
            weight = _scaled_weight(node, args[1], scale, "O")
            return None if weight is None else again(node, [args[0], weight])
        if is_op(node, "nn.dense"):
            column = op("expand_dims", scale, axis=1, num_newaxis=1)
            return again(node, [args[0], op("multiply", args[1], column)])
        if is_op(node, "nn.relu", "nn.leaky_relu"):
            inner = self._scaled(node.args[0], scaling, scale)
            return None if inner is None else again(node, [inner])
        if is_op(node, "nn.bias_add"):
            inner = self._scaled(node.args[0], scaling, scale)
            return None if inner is None else again(node, [inner, op("multiply", args[1], scale)])
        taking = [handle(each) in self.taking for each in node.args]
        made: list[relax.Expr | None] = list(args)
        for place in (0, 1):
            if taking[place]:
                made[place] = self._scaled(node.args[place], scaling, scale)
            else:
                factor = _along(scale, node.args[1 - place], scaling.axes)
                made[place] = None if factor is None else op("multiply", args[place], factor)
        return None if None in made else again(node, made)


# ---------------------------------------------------------------- both


def _both(first: Scaling | None, second: Scaling | None) -> Scaling | None:
    """What is possible for two readers of one value."""
    if first is None or second is None:
        return None
    axes = tuple(axis for axis in first.axes if axis in second.axes)
    return Scaling(axes, first.positive or second.positive) if axes else None


def _rebuilt(node: relax.Expr, below: list[relax.Expr]) -> relax.Expr:
    made = with_operands(node, below)
    if isinstance(node, relax.Call) and isinstance(node.op, relax.Function):
        return call_of(node.op, below, node.ty)
    return made


def _readers(nodes: list[relax.Expr], body: relax.Expr) -> dict[int, int]:
    """How often each node is read; the result of the body is read once."""
    count = {handle(node): 0 for node in nodes}
    count[handle(body)] = 1
    for node in nodes:
        for each in operands(node):
            count[handle(each)] += 1
    return count


def _data_scaling(call: relax.Call) -> Scaling | None:
    return _channel_scaling(call, str(call.attrs["data_layout"]))


def _result_scaling(call: relax.Call) -> Scaling | None:
    return _channel_scaling(call, str(call.attrs["out_layout"] or call.attrs["data_layout"]))


def _channel_scaling(call: relax.Call, layout: str) -> Scaling | None:
    """Along the channels: of one group or of a depthwise convolution, blocked wholly or not."""
    kernel, data = Layout(str(call.attrs["kernel_layout"])), Layout(layout)
    if int(call.attrs["groups"]) != 1 and not _is_depthwise(call):
        return None
    blocks = (kernel.index("o") >= 0, kernel.index("i") >= 0, data.index("c") >= 0)
    if any(blocks) != all(blocks) or kernel.index("I") < 0 or data.index("C") < 0:
        return None
    small = (data.index("c"),) if all(blocks) else ()
    return Scaling((data.index("C"), *small))


def _is_depthwise(call: relax.Call) -> bool:
    """Whether each input channel has one filter of its own."""
    layout, shape = Layout(str(call.attrs["kernel_layout"])), _shape(call.args[1])
    if any(not isinstance(extent, int) for extent in shape):
        return False
    filters = _extent(shape, layout, "O")
    return filters == int(call.attrs["groups"]) and _extent(shape, layout, "I") == 1


def _extent(shape: Sequence[Any], layout: Layout, letter: str) -> int:
    small = layout.index(letter.lower())
    return int(shape[layout.index(letter)]) * (int(shape[small]) if small >= 0 else 1)


def _scaled_weight(
    call: relax.Call, weight: relax.Expr, scale: relax.Expr, letter: str
) -> relax.Expr | None:
    """A kernel times a scale of its output ("O") or input ("I") channels."""
    layout = Layout(str(call.attrs["kernel_layout"]))
    small = layout.index(letter.lower())
    axes = (layout.index(letter), *((small,) if small >= 0 else ()))
    factor = _along(scale, weight, axes)
    return None if factor is None else op("multiply", weight, factor)


def _shape(expr: relax.Expr) -> list[Any]:
    """Extents, numbers where they are known."""
    ty = expr.ty
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        return []
    return [int(each) if type(each).__name__ == "IntImm" else each for each in ty.shape.values]


def _same_shape(left: relax.Expr, right: relax.Expr) -> bool:
    return all(map(_equal, _shape(left), _shape(right))) and left.ty.ndim == right.ty.ndim


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, int) or isinstance(right, int):
        return isinstance(left, int) and isinstance(right, int) and left == right
    return bool(tvm_ffi.structural_equal(left, right))


def _matches(left: relax.Expr, right: relax.Expr, axes: Sequence[int]) -> bool:
    """Whether `right` broadcasts to `left` and varies along these axes only, along all of them."""
    wide, narrow = _shape(left), _shape(right)
    before = len(wide) - len(narrow)
    if before < 0:
        return False
    for place, extent in enumerate(wide):
        if place in axes:
            if place < before or not _equal(extent, narrow[place - before]):
                return False
        elif place >= before and not is_one(narrow[place - before]):
            return False
    return True


def _vector(left: relax.Expr, right: relax.Expr, axes: Sequence[int]) -> relax.Expr | None:
    """A factor of `left` with the scaled axes alone; None if it varies along others."""
    narrow, wide = _shape(right), _shape(left)
    if not narrow and right.ty.ndim == 0 and all(isinstance(wide[axis], int) for axis in axes):
        made = op("expand_dims", right, axis=0, num_newaxis=len(axes))
        for place, axis in enumerate(axes):
            made = op("repeat", made, repeats=wide[axis], axis=place)
        return made
    if not _matches(left, right, axes):
        return None
    before = len(wide) - len(narrow)
    single = [place for place in range(len(narrow)) if place + before not in axes]
    return op("squeeze", right, axis=single) if single else right


def _along(scale: relax.Expr, value: relax.Expr, axes: Sequence[int]) -> relax.Expr | None:
    """A scale of some axes so that it broadcasts to a value of `value`'s shape."""
    shape = _shape(value)
    if len(axes) > 1:
        wanted = [shape[place] if place in axes else 1 for place in range(len(shape))]
        if not all(isinstance(each, int) for each in wanted):
            return None
        return op("reshape", scale, newshape=wanted)
    after = len(shape) - 1 - axes[0]
    return op("expand_dims", scale, axis=1, num_newaxis=after) if after else scale


def _is_positive(expr: relax.Expr) -> bool:
    """Whether all of a constant's numbers are positive."""
    if dialect.is_relay(expr) and registry.lookup(dialect.relay_name(expr)).keeps:
        return _is_positive(expr.args[0])
    found = array(expr)
    return found is not None and bool((found > 0).all())
