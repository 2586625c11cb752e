"""Lowers nn.conv3d (NCDHW and NDHWC) to an implementation of the schedule library."""

from __future__ import annotations

from collections.abc import Collection

from tvm import relax
from tvm.target import Target

from schedules import strategy
from schedules.conv3d import Conv3dWorkload

from ..layout import static_shape
from ..packing import pack
from .conv2d import OUT_ELEMENTWISE_FUSABLE, ints

_LAYOUTS = {("NCDHW", "OIDHW"): False, ("NDHWC", "DHWIO"): True}


def describe(call: relax.Call) -> Conv3dWorkload | None:
    """The workload of a conv3d call; None for forms that no implementation takes."""
    attrs = call.attrs
    data, weight = static_shape(call.args[0]), static_shape(call.args[1])
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
    same_out = str(attrs.out_layout or layouts[0]) == layouts[0]
    if data is None or weight is None or layouts not in _LAYOUTS or not same_out:
        return None

    channels_last = _LAYOUTS[layouts]
    if channels_last:
        batch, *size, channels = data
        *kernel, _, out_channels = weight
    else:
        batch, channels, *size = data
        out_channels, _, *kernel = weight
    return Conv3dWorkload(
        batch,
        channels,
        ints(size),
        out_channels,
        ints(kernel),
        ints(attrs.strides),
        ints(attrs.padding),
        ints(attrs.dilation),
        int(attrs.groups),
        str(call.args[0].ty.dtype),
        str(call.ty.dtype),
        channels_last,
    )


def lower_conv3d(
    builder: relax.BlockBuilder,
    call: relax.Call,
    target: Target,
    query: strategy.Query | None,
    disabled: Collection[str] = (),
) -> relax.Expr | None:
    """Emit the chosen implementation of a call on plain tensors.

    Returns
    -------
    The result in the call's layout; None when the library has no implementation for it.
    """
    workload = describe(call)
    if workload is None:
        return None
    chosen = strategy.select("nn.conv3d", workload, target, query, disabled)
    if chosen is None:
        return None
    impl, config = chosen
    data, weight = call.args
    pack_weight = impl.pack
    assert pack_weight is not None, f"{impl.name} says not how its weights are packed"
    packed = pack(builder, weight, lambda ops, w: pack_weight(workload, ops, w, config))
    return builder.emit(
        builder.call_te(
            lambda x, w: impl.compute(workload, config, x, w),
            data,
            packed,
            primfunc_name_hint="conv3d",
            primfunc_attrs={"op_pattern": OUT_ELEMENTWISE_FUSABLE},
        )
    )
