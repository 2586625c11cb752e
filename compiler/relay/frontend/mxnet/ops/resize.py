"""Resizing of images."""

from __future__ import annotations

from tvm import relax

from ..node import SymbolNode

op = relax.op


def upsampling(node: SymbolNode) -> relax.Expr:
    """Upsample by an integer factor: nearest of any inputs, bilinear with a weight."""
    kind, scale = node.text("sample_type"), node.integer("scale")
    node.without_effect("multi_input_mode")  # of one input
    if kind == "bilinear":
        return _bilinear(node, scale)
    if kind != "nearest":
        raise node.unsupported(f"sample_type {kind!r}")
    height, width = (extent * scale for extent in node.shape(0)[2:])
    grown = []
    for index in range(node.count):
        own = node.shape(index)[2:]
        if height % own[0] or width % own[1]:
            raise node.unsupported(f"input {index} of shape {node.shape(index)}")
        grown.append(_repeated(node, index, height // own[0], width // own[1]))
    if node.text("multi_input_mode", "concat") == "concat":
        return op.concat(grown, 1) if len(grown) > 1 else grown[0]
    total = grown[0]
    for value in grown[1:]:
        total = node.emit(op.add(total, value))
    return total


def _repeated(node: SymbolNode, index: int, rows: int, columns: int) -> relax.Expr:
    height, width = node.shape(index)[2:]
    return node.emit(
        op.image.resize2d(
            node[index],
            (height * rows, width * columns),
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        )
    )


def _bilinear(node: SymbolNode, scale: int) -> relax.Expr:
    """A transposed convolution of every channel by itself with the given weight."""
    channels = node.shape(0)[1]
    kernel = 2 * scale - scale % 2
    pad = scale // 2
    result = op.nn.conv2d_transpose(
        node[0], node[1], strides=(scale, scale), padding=(pad,) * 4, groups=channels
    )
    if node.shape(1) != (channels, 1, kernel, kernel):
        raise node.unsupported(f"a weight of shape {node.shape(1)}")
    return result


def bilinear_resize(node: SymbolNode) -> relax.Expr:
    """Bilinear resizing in which corners stay corners."""
    if node.text("mode", "size") != "size":
        raise node.unsupported(f"mode {node.text('mode')!r}")
    height, width = node.shape(0)[2:]
    node.without_effect("height", "width")  # beside scales
    if node.has("scale_height"):
        height = int(height * node.number("scale_height"))
        width = int(width * node.number("scale_width"))
    else:
        height, width = node.integer("height", 1), node.integer("width", 1)
    corners = node.flag("align_corners", True)
    return op.image.resize2d(
        node[0],
        (height, width),
        method="linear",
        coordinate_transformation_mode="align_corners" if corners else "half_pixel",
    )


CONVERTERS = {"UpSampling": upsampling, "_contrib_BilinearResize2D": bilinear_resize}
