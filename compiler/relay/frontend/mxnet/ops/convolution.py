"""Convolutions and transposed convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from ..node import SymbolNode

op = relax.op

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_KERNELS = {1: "OIW", 2: "OIHW", 3: "OIDHW"}
_TRANSPOSED = {1: "IOW", 2: "IOHW", 3: "IODHW"}
_CONV = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
_CONV_TRANSPOSE = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}


def _rank(node: SymbolNode) -> int:
    rank = len(node.integers("kernel"))
    if rank not in _CONV or len(node.shape(0)) != rank + 2:
        raise node.unsupported(f"a kernel of {rank} axes on data of shape {node.shape(0)}")
    return rank


def _layouts(node: SymbolNode, rank: int) -> tuple[str, str]:
    """Layouts of data and kernel; the channels-last kernel is (filters, *kernel, channels)."""
    layout = node.text("layout", _LAYOUTS[rank])
    if layout == _LAYOUTS[rank]:
        return layout, _KERNELS[rank]
    if layout == f"N{_LAYOUTS[rank][2:]}C":
        return layout, f"O{_LAYOUTS[rank][2:]}I"
    raise node.unsupported(f"layout {layout!r}")


def _add_bias(node: SymbolNode, result: relax.Expr, layout: str, default: bool) -> relax.Expr:
    if node.flag("no_bias", default):
        return result
    filters = node.integer("num_filter")
    along = [filters if axis == "C" else 1 for axis in layout]
    return op.add(node.emit(result), op.reshape(node[2], along))


def convolution(node: SymbolNode) -> relax.Expr:
    """Convolution of one, two or three spatial axes."""
    rank = _rank(node)
    layout, kernel_layout = _layouts(node, rank)
    pads = node.spatial("pad", rank, 0)
    result = _CONV[rank](
        node[0],
        node[1],
        strides=node.spatial("stride", rank, 1),
        padding=(*pads, *pads),
        dilation=node.spatial("dilate", rank, 1),
        groups=node.integer("num_group", 1),
        data_layout=layout,
        kernel_layout=kernel_layout,
    )
    return _add_bias(node, result, layout, False)


def deconvolution(node: SymbolNode) -> relax.Expr:
    """Transposed convolution; `target_shape` chooses padding and output padding."""
    rank = _rank(node)
    layout = node.text("layout", _LAYOUTS[rank])
    if layout != _LAYOUTS[rank]:
        raise node.unsupported(f"layout {layout!r}")
    dilation = node.spatial("dilate", rank, 1)
    kernel = [(n - 1) * d + 1 for n, d in zip(node.integers("kernel"), dilation)]
    strides = node.spatial("stride", rank, 1)
    pads = node.spatial("pad", rank, 0)
    extra = node.spatial("adj", rank, 0)
    if any(node.integers("target_shape", ())):
        target = node.spatial("target_shape", rank, 0)
        full = [s * (n - 1) + k for s, n, k in zip(strides, node.shape(0)[2:], kernel)]
        surplus = [have - want for have, want in zip(full, target)]
        if min(surplus) < 0:
            raise node.unsupported(f"target_shape {target} is larger than the result, {full}")
        extra = tuple(count % 2 for count in surplus)
        pads = tuple((count + 1) // 2 for count in surplus)
    result = _CONV_TRANSPOSE[rank](
        node[0],
        _dilated(node, node[1], dilation),
        strides=strides,
        padding=(*pads, *pads),
        output_padding=extra,
        groups=node.integer("num_group", 1),
        data_layout=layout,
        kernel_layout=_TRANSPOSED[rank],
    )
    return _add_bias(node, result, layout, True)


def _dilated(node: SymbolNode, weight: relax.Expr, dilation: Sequence[int]) -> relax.Expr:
    """The weight with zeros between its spatial elements."""
    for axis, factor in enumerate(dilation, 2):
        if factor == 1:
            continue
        shape = list(node.shape_of(weight))
        apart = node.emit(op.expand_dims(weight, axis + 1))
        zeros = node.emit(op.zeros_like(apart))
        wide = node.emit(op.concat([apart, *[zeros] * (factor - 1)], axis + 1))
        length = (shape[axis] - 1) * factor + 1
        shape[axis] *= factor
        joined = node.emit(op.reshape(wide, shape))
        weight = node.emit(op.strided_slice(joined, [axis], [0], [length]))
    return weight


CONVERTERS = {
    **dict.fromkeys(("Convolution", "Convolution_v1"), convolution),
    "Deconvolution": deconvolution,
}
