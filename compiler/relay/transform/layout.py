"""ConvertLayout: convolutions in a layout of choice, and what follows them with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax

from ...errors import RelayError
from .. import dialect
from ..nest import handle, operands, post_order, with_operands
from .base import body_wise
from .build import again, array, constant, is_op, op, tuple_of

_KERNELS = {
    "NCHW": "OIHW",
    "NHWC": "HWIO",
    "HWNC": "HWOI",
    "NCDHW": "OIDHW",
    "NDHWC": "DHWIO",
}
_TRANSPOSED_KERNELS = {"NCHW": "IOHW", "NHWC": "HWIO"}
_CONVOLUTIONS = (
    "nn.conv2d",
    "nn.conv3d",
    "nn.conv2d_transpose",
    "nn.deformable_conv2d",
    "qnn.conv2d",
    "qnn.conv2d_transpose",
)
_WITH_LAYOUT = (
    "nn.max_pool2d",
    "nn.avg_pool2d",
    "nn.global_max_pool2d",
    "nn.global_avg_pool2d",
    "nn.adaptive_avg_pool2d",
    "nn.adaptive_max_pool2d",
    "nn.upsampling",
    "image.resize2d",
)
_ELEMENTWISE = (
    *("nn.relu", "nn.leaky_relu", "clip", "cast", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt"),
    *("negative", "abs", "round", "floor", "ceil", "erf", "fast_exp", "fast_tanh", "fast_erf"),
    *("nn.dropout", "annotation.stop_fusion", "copy"),
)
_BINARY = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power"),
    *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
)
_AXIS = ("nn.bias_add", "nn.softmax", "nn.log_softmax", "nn.prelu", "split", "nn.batch_norm")
_REDUCTIONS = ("sum", "mean", "max", "min", "prod")


def ConvertLayout(desired_layouts: Mapping[str, Sequence[str]]) -> Any:
    """Convert operators to other layouts; values change layout where two differ.

    Parameters
    ----------
    desired_layouts : dict of str to list of str
        Operator name to the layouts of its data and kernel; "default" for a kernel takes the one
        that goes with the data's. Poolings and image operators may be named with one layout.

    Raises
    ------
    RelayError
        An operator that layouts can't be chosen for.
    """
    wanted = {
        str(name): [str(each) for each in layouts] for name, layouts in desired_layouts.items()
    }
    for name in wanted:
        if name not in _CONVOLUTIONS + _WITH_LAYOUT:
            raise RelayError(f"ConvertLayout: the layout of {name} can't be chosen")
    return body_wise("ConvertLayout", 3, lambda body: _Conversion(wanted).run(body))


class _Conversion:
    """Rebuilt values and, for those that are not as they were, their layouts.

    `layouts[key]` is (layout before, layout now); a value that is not in it is as it was.
    """

    def __init__(self, wanted: Mapping[str, list[str]]) -> None:
        self.wanted = wanted
        self.made: dict[int, relax.Expr] = {}
        self.layouts: dict[int, tuple[str, str]] = {}

    def run(self, body: relax.Expr) -> relax.Expr:
        for node in post_order(body):
            self._convert(node)
        return self._plain(body)

    def _convert(self, node: relax.Expr) -> None:
        name = dialect.relay_name(node) if isinstance(node, relax.Call) else ""
        if name in self.wanted and name in _CONVOLUTIONS:
            made = self._convolution(node, name)
        elif name in _WITH_LAYOUT:
            made = self._with_layout(node, name)
        else:
            made = self._following(node, name)
        if made is None:
            made = with_operands(node, [self._plain(each) for each in operands(node)])
        self.made[handle(node)] = made

    def _plain(self, node: relax.Expr) -> relax.Expr:
        """The value in the layout that it had."""
        made = self.made[handle(node)]
        pair = self.layouts.get(handle(node))
        return made if pair is None else _transformed(made, pair[1], pair[0])

    def _in(self, node: relax.Expr, before: str, now: str) -> relax.Expr:
        """The value, whose layout was `before`, in the layout `now`."""
        pair = self.layouts.get(handle(node))
        if pair == (before, now):
            return self.made[handle(node)]
        return _transformed(self._plain(node), before, now)

    def _convolution(self, node: relax.Call, name: str) -> relax.Expr | None:
        attrs = dialect.attributes(node)
        layouts = self.wanted[name]
        before, kernel = attrs["data_layout"], attrs["kernel_layout"]
        now = layouts[0] if layouts[0] != "default" else before
        table = _TRANSPOSED_KERNELS if "transpose" in name else _KERNELS
        new_kernel = layouts[1] if len(layouts) > 1 else "default"
        if new_kernel == "default":
            new_kernel = table.get(now, "")
            depthwise = name.endswith("conv2d") and int(attrs["groups"]) > 1
            if depthwise and now == "NHWC" and self._is_depthwise(node, kernel):
                new_kernel = "HWOI"
        if not new_kernel or set(now) != set(before) or attrs.get("out_layout"):
            return None
        data = self._in(node.args[0], before, now)
        weight = _transformed(self._plain(node.args[1]), kernel, new_kernel)
        rest = [self._plain(each) for each in node.args[2:]]
        operands_now = [data, weight, *rest]
        if name == "nn.deformable_conv2d":
            operands_now = [
                data,
                self._in(node.args[1], before, now),
                _transformed(self._plain(node.args[2]), kernel, new_kernel),
            ]
        self.layouts[handle(node)] = (before, now)
        return again(node, operands_now, data_layout=now, kernel_layout=new_kernel)

    def _is_depthwise(self, node: relax.Call, kernel: str) -> bool:
        extents = node.args[1].ty.shape.values
        return int(extents[kernel.index("O")]) == int(node.attrs["groups"])

    def _with_layout(self, node: relax.Call, name: str) -> relax.Expr | None:
        before = str(node.attrs["layout"])
        pair = self.layouts.get(handle(node.args[0]))
        now = self.wanted[name][0] if name in self.wanted else (pair[1] if pair else before)
        if now == before or (pair is not None and pair[0] != before):
            return None
        self.layouts[handle(node)] = (before, now)
        rest = [self._plain(each) for each in node.args[1:]]
        return again(node, [self._in(node.args[0], before, now), *rest], layout=now)

    def _following(self, node: relax.Expr, name: str) -> relax.Expr | None:
        """An operator that works in any layout takes that of its operands."""
        pairs = [self.layouts.get(handle(each)) for each in operands(node)]
        pair = next((each for each in pairs if each is not None), None)
        if pair is None:
            return None
        before, now = pair
        if name in _ELEMENTWISE:
            made: relax.Expr = again(node, [self.made[handle(each)] for each in operands(node)])
        elif name in _BINARY:
            values = [self._broadcast(each, before, now) for each in operands(node)]
            if any(value is None for value in values):
                return None
            made = again(node, values)
        elif isinstance(node, relax.Tuple):
            made = tuple_of([self._in(each, before, now) for each in node.fields])
        elif name == "concatenate":
            made = again(node, [self.made[handle(node.args[0])]], axis=_moved(node, before, now))
        elif name in _AXIS:
            rest = [self._plain(each) for each in node.args[1:]]
            data = self._in(node.args[0], before, now)
            made = again(node, [data, *rest], axis=_moved(node, before, now))
        elif isinstance(node, relax.TupleGetItem) and self._splits(node.tuple_value, node):
            made = with_operands(node, [self.made[handle(node.tuple_value)]])
        elif name == "nn.pad":
            widths = dialect.attributes(node)["pad_width"]
            data = self._in(node.args[0], before, now)
            made = again(
                node,
                [data, self._plain(node.args[1])],
                pad_width=[widths[before.index(letter)] for letter in now],
            )
        elif name in _REDUCTIONS and node.attrs["keepdims"] and node.attrs["axis"] is not None:
            axes = [now.index(before[axis]) for axis in dialect.attributes(node)["axis"]]
            made = again(node, [self._in(node.args[0], before, now)], axis=sorted(axes))
        else:
            return None
        self.layouts[handle(node)] = pair
        return made

    def _splits(self, whole: relax.Expr, field: relax.TupleGetItem) -> bool:
        """Whether a field of a tuple has the layout that the tuple was given."""
        if is_op(whole, "split"):
            return True
        if is_op(whole, "nn.batch_norm", "nn.dropout") and int(field.index) == 0:
            return True
        return isinstance(whole, relax.Tuple)

    def _broadcast(self, node: relax.Expr, before: str, now: str) -> relax.Expr | None:
        """The other operand of arithmetic in the new layout."""
        rank = node.ty.ndim
        if rank == len(before):
            return self._in(node, before, now)
        value = self._plain(node)
        if rank == 0:
            return value
        if rank > len(before):
            return None
        missing = list(range(len(before) - rank))
        wide = op("expand_dims", value, axis=0, num_newaxis=len(missing))
        return _transformed(wide, before, now)


def _moved(node: relax.Call, before: str, now: str) -> int:
    axis = int(node.attrs["axis"]) % len(before)
    return now.index(before[axis])


def _transformed(value: relax.Expr, source: str, target: str) -> relax.Expr:
    """A value in another layout; constants at once."""
    if source == target:
        return value
    if is_op(value, "layout_transform") and value.attrs["src_layout"] == target:
        return _transformed(value.args[0], str(value.attrs["src_layout"]), target)
    found = array(value)
    if found is not None and found.ndim == len(source):
        order = [source.index(letter) for letter in target]
        return constant(found.transpose(order), str(found.dtype))
    return op("layout_transform", value, src_layout=source, dst_layout=target)
