"""ConvertLayout and AlterOpLayout: change operator layouts and adapt the surrounding operators."""

from __future__ import annotations

import contextvars
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from ...errors import RelayError
from .. import dialect
from ..nested_expressions import post_order, rewrite
from ..op import registry
from ..op.op_def import Operator
from ..relax_to_relay import raised
from .base import body_wise
from .build import script_attribute
from .layout_rewrite import LayoutRewrite
from .simplify import canonical


def ConvertLayout(desired_layouts: Mapping[str, Sequence[str]]) -> Any:
    """Convert operators to other layouts, with layout transforms where adjacent layouts differ.

    Parameters
    ----------
    desired_layouts : dict of str to list of str
        Maps operator names to layouts of data and kernel. "default" selects the kernel layout
        that matches the data. Pooling and image operators have only one layout. Scripts may
        register `FTVMConvertOpLayout` for further operators. All other operators adopt the
        layouts of their operands.

    bias_add is first converted to add, as in `CanonicalizeOps`.

    Raises
    ------
    UnsupportedRelayOperatorError
        An operator name is unknown.
    RelayError
        An operator does not support the layout.
    """
    wanted = {
        str(name): [str(each) for each in layouts] for name, layouts in desired_layouts.items()
    }
    for name in wanted:
        registry.lookup(name)

    def change(call: relax.Call, attrs: dict[str, Any], args: list[relax.Expr]) -> Any:
        name = dialect.relay_name(call)
        if name not in wanted:
            return None
        convert = script_attribute(name, "FTVMConvertOpLayout") or _conversion(
            registry.lookup(name)
        )
        if convert is None:
            return None
        return convert(_held(attrs), args, _placeholders(call), wanted[name])

    def converted(body: relax.Expr) -> relax.Expr:
        body = _raised(body, wanted)
        names = {dialect.relay_name(node) for node in post_order(body) if dialect.is_relay(node)}
        if not names & set(wanted):
            return body
        return LayoutRewrite(change).run(canonical(body))

    return body_wise("ConvertLayout", 3, converted)


def _raised(body: relax.Expr, wanted: Mapping[str, Any]) -> relax.Expr:
    """Convert an importer's Relax operators to Relay if the body has any wanted operators."""
    names = {str(node.op.name) for node in post_order(body) if _is_relax(node)}
    if not any(f"relax.{name}" in names for name in wanted):
        return body

    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if not _is_relax(new):
            return new
        made = raised(new)  # without a Relay form, keep layouts
        return new if made is None else made

    return rewrite(body, change)


def _is_relax(node: Any) -> bool:
    return (
        isinstance(node, relax.Call)
        and isinstance(node.op, tvm.ir.Op)
        and str(node.op.name).startswith("relax.")
    )


def AlterOpLayout() -> Any:
    """Replace operators with the result of their registered `FTVMAlterOpLayout` function.

    The function takes the call's attributes, its operands, TE placeholders of their types and the
    result type. It returns a call with the new layouts in its attributes, or None to keep the
    operator. Without registered functions the module is unchanged: the build plans layouts for the
    whole graph.
    """

    def change(call: relax.Call, attrs: dict[str, Any], args: list[relax.Expr]) -> Any:
        alter = script_attribute(dialect.relay_name(call), "FTVMAlterOpLayout")
        if alter is None:
            return None
        return alter(_held(attrs), args, _placeholders(call), call.ty)

    def altered(body: relax.Expr) -> relax.Expr:
        names = {dialect.relay_name(node) for node in post_order(body) if dialect.is_relay(node)}
        if all(script_attribute(name, "FTVMAlterOpLayout") is None for name in names):
            return body
        return LayoutRewrite(change, changed_without_rule=True).run(body)

    return body_wise("AlterOpLayout", 3, altered)


class LayoutConfig:
    """`with LayoutConfig(skip_layers=[0]):` exclude convolutions from ConvertLayout by index.

    Indices count conv2d and deformable_conv2d in evaluation order; -1 is ignored.
    """

    def __init__(self, skip_layers: Sequence[int] | None = None) -> None:
        self.skip_counter = 0
        self.skip_layers = list(skip_layers or [])

    def check_skip(self) -> bool:
        """Count a convolution and return whether to skip it."""
        skip = self.skip_counter in self.skip_layers
        self.skip_counter += 1
        return skip

    def reset(self) -> None:
        """Reset the count to 0."""
        self.skip_counter = 0
        self.skip_layers = []

    def __enter__(self) -> LayoutConfig:
        self._token = _CONFIG.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _CONFIG.reset(self._token)


_CONFIG: contextvars.ContextVar[LayoutConfig | None] = contextvars.ContextVar(
    "layout_config", default=None
)


def _held(attrs: dict[str, Any]) -> Any:
    """Convert attributes to TVM objects, so that `[]`, `**` and `get_int_tuple` work."""
    return tvm.ir.make_node("ir.DictAttrs", **attrs)


def _placeholders(call: relax.Call) -> list[Any]:
    """TE placeholders of the operands' types; tuples are flattened."""
    types: list[Any] = []
    for arg in call.args:
        types += list(arg.ty.fields) if isinstance(arg.ty, relax.TupleType) else [arg.ty]
    return [tvm.te.placeholder(list(ty.shape.values), dtype=str(ty.dtype)) for ty in types]


def _convolution(
    found: Operator,
    attrs: dict[str, Any],
    args: list[relax.Expr],
    infos: list[Any],
    layouts: list[str],
) -> Any:
    """Rebuild a convolution with the desired data and kernel layouts."""
    name = found.name
    if len(layouts) != 2 or layouts[0] == "default":
        raise RelayError(f"ConvertLayout: {name} needs a layout of its data, and one of its kernel")
    data, kernel = layouts
    config = _CONFIG.get() if name in ("nn.conv2d", "nn.deformable_conv2d") else None
    if config is not None and config.check_skip():
        return None
    tile = re.fullmatch(r"NCHW(\d+)c", data)
    if tile is not None and name == "nn.conv2d" and kernel != "default":
        extent = infos[0].shape[1]
        if isinstance(args[0], relax.Var) and int(extent) % int(tile.group(1)):
            return None
        changed = {**attrs, "data_layout": data, "kernel_layout": kernel}
        changed["out_layout"] = attrs.get("out_layout") or ""
        return dialect.call("nn.contrib_conv2d_NCHWc", args, changed)
    if kernel == "default":
        kernel = found.kernel_layouts.get(data, "")
        if not kernel:
            raise RelayError(f"ConvertLayout: {name} has no layout {data}")
        if data == "NHWC" and name.endswith(".conv2d") and _is_depthwise(attrs, infos):
            kernel = "HWOI"
    return dialect.call(name, args, {**attrs, "data_layout": data, "kernel_layout": kernel})


def _is_depthwise(attrs: dict[str, Any], infos: list[Any]) -> bool:
    """Whether the convolution is depthwise."""
    groups = int(attrs["groups"])
    channels = int(infos[0].shape[str(attrs["data_layout"]).index("C")])
    filters = int(infos[1].shape[str(attrs["kernel_layout"]).index("O")])
    return groups > 1 and groups == channels == filters


def _of_one_layout(
    found: Operator, attrs: dict[str, Any], args: list[relax.Expr], _infos: Any, layouts: list[str]
) -> Any:
    name = found.name
    if not layouts or layouts[0] == "default":
        raise RelayError(f"ConvertLayout: {name} needs a layout, not {layouts}")
    changed = {**attrs, "layout": layouts[0]}
    if "out_layout" in found.attributes:
        changed["out_layout"] = layouts[0]
    return dialect.call(name, args, changed)


def _backward_weight(
    attrs: dict[str, Any], args: list[relax.Expr], infos: list[Any], layouts: list[str]
) -> Any:
    del infos
    changed = {**attrs, "data_layout": layouts[0], "kernel_layout": layouts[0]}
    return dialect.call("nn.conv2d_backward_weight", args, {**changed, "out_layout": layouts[1]})


def _conversion(found: Operator) -> Callable[..., Any] | None:
    """Conversion function of an operator, from the attributes that name its layouts."""
    if found.name == "nn.conv2d_backward_weight":
        return _backward_weight
    if found.kernel_layouts:
        return functools.partial(_convolution, found)
    if found.layout is not None and "layout" in found.attributes:
        return functools.partial(_of_one_layout, found)
    return None
