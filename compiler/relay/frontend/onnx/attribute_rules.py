"""Rules for attribute values of ONNX operators that ONNX's own checks do not cover."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler.errors import UnsupportedOperatorError

from .node import Node, constant_value
from .shape_expr import shape_of

AT_LEAST_ONE = frozenset(
    [
        *("blocksize", "dilations", "group", "hidden_size", "kernel_shape", "num_groups"),
        *("num_outputs", "offset_group", "output_shape", "pooled_shape", "sample_size"),
        *("size", "strides"),
    ]
)
"""Integer attributes whose entries are positive, whichever operator has them."""

AT_LEAST_ZERO = frozenset(["output_padding", "sampling_ratio", "split"])

FLAGS = frozenset(["center_point_box", "exclusive", "layout", "reverse", "storage_order"])
"""Attributes that are 0 or 1. onnxruntime takes any nonzero value for the flags not listed here."""

_AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_DIRECTIONS = ("forward", "reverse", "bidirectional")
_REDUCTIONS = ("none", "add", "mul", "max", "min")

CHOICES: dict[tuple[str, str], tuple[Any, ...]] = {
    **{(kind, "direction"): _DIRECTIONS for kind in ("GRU", "LSTM", "RNN")},
    **{(kind, "reduction"): _REDUCTIONS for kind in ("ScatterElements", "ScatterND")},
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("Gelu", "approximate"): ("none", "tanh"),
    ("GridSample", "mode"): ("bilinear", "bicubic", "linear", "cubic", "nearest"),
    ("GridSample", "padding_mode"): ("zeros", "border", "reflection"),
    ("LpNormalization", "p"): (1, 2),
    ("Mod", "fmod"): (0, 1),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Upsample", "mode"): ("nearest", "linear", "cubic", "bilinear"),
}

_WITH_AXIS = frozenset(
    [
        *("ArgMax", "ArgMin", "Compress", "Concat", "Gather", "GatherElements", "Hardmax"),
        *("LayerNormalization", "LogSoftmax", "LpNormalization", "OneHot", "Scatter"),
        *("ScatterElements", "Softmax", "Split", "SplitToSequence", "TopK", "Unique"),
    ]
)
"""Operators whose attribute `axis` is an axis of the first input."""

_FLATTENING = frozenset(["Hardmax", "LogSoftmax", "Softmax"])
"""Operators that flatten the axes from `axis` on before opset 13, where it may equal the rank."""


def check_attributes(node: Node, from_model: bool) -> None:
    """Check the attribute values of a node of ONNX's own domain.

    Nodes that converters create (`from_model` false) may be pools with wider pads. The
    UnsupportedOperatorError names the attribute and the allowed values.
    """
    kind = node.proto.op_type
    for name in [entry.name for entry in node.proto.attribute]:
        _check_value(node, name)
    if kind in _WITH_AXIS and "axis" in _names(node):
        _check_axis(node)
    if kind in _CONVOLUTIONS:
        _check_convolution(node)
    elif kind in _POOLS:
        if from_model:
            _check_pool_pads(node)
    elif kind in _RULES:
        _RULES[kind](node)


def invalid(node: Node, name: str, allowed: str) -> UnsupportedOperatorError:
    """The error for an attribute value that is not allowed."""
    value = node.attr(name)
    shown = list(value) if isinstance(value, tuple) else value
    return node.unsupported(f"the attribute {name}={shown!r} is invalid: {allowed}")


def _names(node: Node) -> set[str]:
    return {entry.name for entry in node.proto.attribute}


def _known(value: Any) -> list[Any] | None:
    """Extents of an operand, numbers or expressions; None where they are unknown."""
    return None if value is None else shape_of(value)


def _unlike(left: Any, right: Any) -> bool:
    """Whether two extents are numbers that differ."""
    return isinstance(left, int) and isinstance(right, int) and left != right


def _check_value(node: Node, name: str) -> None:
    value = node.attr(name)
    entries = value if isinstance(value, tuple) else (value,)
    numbers = [entry for entry in entries if isinstance(entry, (int, float))]
    if name in AT_LEAST_ONE and any(number < 1 for number in numbers):
        raise invalid(node, name, "it must be at least 1")
    if name in AT_LEAST_ZERO and any(number < 0 for number in numbers):
        raise invalid(node, name, "it must not be negative")
    choices = CHOICES.get((node.proto.op_type, name))
    if name == "auto_pad":
        choices = _AUTO_PADS
    elif name in FLAGS:
        choices = (0, 1)
    if choices is not None and value not in choices:
        raise invalid(node, name, f"expected one of {', '.join(map(str, choices))}")


def _check_axis(node: Node) -> None:
    shape = _known(node.get(0))
    if shape is None or (node.opset < 13 and node.proto.op_type in _FLATTENING):
        return
    node.axis(0, len(shape) + (node.proto.op_type == "OneHot"))


_CONVOLUTIONS = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "DeformConv": 1, "QLinearConv": 3}
"""Convolutions and the index of their weight."""


def _check_convolution(node: Node) -> None:
    kind, group = node.proto.op_type, node.attr("group", 1)
    if any(node.attr("pads", ())):
        if node.attr("auto_pad", "NOTSET") != "NOTSET":
            raise invalid(node, "pads", "auto_pad computes the pads; leave one of them out")
        if min(node.attr("pads")) < 0:
            raise invalid(node, "pads", "it must not be negative")
    data, weight = _known(node.get(0)), _known(node.get(_CONVOLUTIONS[kind]))
    if weight is None or len(weight) < 3:
        return
    window = weight[2:]
    _check_window(node, _CONVOLUTIONS[kind], window)
    for name, count in (("strides", 1), ("dilations", 1), ("kernel_shape", 1), ("pads", 2)):
        if name in _names(node) and len(node.attr(name)) != count * len(window):
            raise invalid(node, name, f"the weight's window takes {count * len(window)} entries")
    if any(map(_unlike, node.attr("kernel_shape", ()), window)):
        raise invalid(node, "kernel_shape", f"the weight has the window {window}")
    if isinstance(weight[0], int) and weight[0] % group:
        raise invalid(node, "group", f"it must divide the weight's first extent, {weight[0]}")
    channels = data[1] if data is not None and len(data) == len(weight) else None
    expected = weight[0] if kind == "ConvTranspose" else weight[1]
    if kind != "ConvTranspose" and isinstance(expected, int):
        expected *= group
    if _unlike(channels, expected):
        raise invalid(
            node, "group", f"the weight takes {expected} channels, the data has {channels}"
        )
    bias = _known(node.get(2)) if kind in ("Conv", "ConvTranspose") else None
    if bias is not None and len(bias) != 1:
        raise node.unsupported(f"the bias has {len(bias)} dimensions instead of 1")
    if kind == "DeformConv":
        _check_offsets(node, channels, window)


def _check_window(node: Node, index: int, window: list[Any]) -> None:
    if any(isinstance(extent, int) and extent < 1 for extent in window):
        raise node.unsupported(
            f"the weight (input {index}) has the window {window}; kernel_shape must be at least 1"
        )


def _check_causal_convolution(node: Node) -> None:
    weight = _known(node.get(1))
    if weight is not None:
        _check_window(node, 1, weight[2:])


def _check_offsets(node: Node, channels: Any, window: list[Any]) -> None:
    groups, offsets = node.attr("offset_group", 1), _known(node.get(2))
    if isinstance(channels, int) and channels % groups:
        raise invalid(node, "offset_group", f"it must divide the {channels} channels")
    if offsets is None or len(offsets) < 2 or not all(isinstance(each, int) for each in window):
        return
    expected = groups * len(window)
    for extent in window:
        expected *= extent
    if _unlike(offsets[1], expected):
        why = f"it takes {expected} channels of offsets, input 2 has {offsets[1]}"
        raise invalid(node, "offset_group", why)


_POOLS = frozenset(["AveragePool", "LpPool", "MaxPool"])


def _check_pool_pads(node: Node) -> None:
    kernel, pads = node.attr("kernel_shape", ()), node.attr("pads", ())
    if len(pads) == 2 * len(kernel):
        if any(pad < 0 for pad in pads):
            raise invalid(node, "pads", "it must not be negative")
        if any(pad >= extent for pad, extent in zip(pads, kernel * 2)):
            raise invalid(node, "pads", f"it must be smaller than kernel_shape={list(kernel)}")


def _check_global_pool(node: Node) -> None:
    shape = _known(node.get(0))
    if shape is not None and len(shape) < 3:
        raise node.unsupported(f"input 0 has {len(shape)} dimensions, fewer than 3")


def _check_split(node: Node) -> None:
    shape, count = _known(node.get(0)), len(node.proto.output)
    sizes = node.attr("split")
    if node.opset >= 13:
        array = constant_value(node.get(1))
        sizes = None if array is None else tuple(array.reshape(-1).tolist())
    extent = None if shape is None else shape[node.axis(0, len(shape))]
    if sizes is not None:
        if any(size < 0 for size in sizes):
            raise node.unsupported(f"split={list(sizes)} is invalid: it must not be negative")
        if len(sizes) != count:
            raise node.unsupported(f"split={list(sizes)} does not fit {count} outputs")
        if _unlike(extent, sum(sizes)):
            raise node.unsupported(f"split={list(sizes)} does not add up to the extent {extent}")
    if "num_outputs" in _names(node) and node.attr("num_outputs") != count:
        raise invalid(node, "num_outputs", f"the node has {count} outputs")
    if "num_outputs" in _names(node) and isinstance(extent, int):
        part = -(-extent // count)
        if part * (count - 1) > extent and part > 1:
            raise invalid(node, "num_outputs", f"parts of {part} elements exceed {extent} elements")


def _check_top_k(node: Node) -> None:
    shape = _known(node.get(0))
    array = None if node.opset < 10 else constant_value(node.get(1))
    if node.opset >= 10 and (array is None or array.size != 1):
        return
    k = node.attr("k") if array is None else int(array.reshape(()))
    if k is None or shape is None:
        return
    extent = shape[node.axis(-1, len(shape))]
    if k < 0 or (isinstance(extent, int) and k > extent):
        raise node.unsupported(f"k={k} is invalid: it must be between 0 and the extent {extent}")


def _check_transpose(node: Node) -> None:
    shape, order = _known(node.get(0)), node.attr("perm")
    if shape is not None and order is not None and sorted(order) != list(range(len(shape))):
        raise invalid(node, "perm", f"it must be a permutation of the axes 0 to {len(shape) - 1}")


def _check_one_hot(node: Node) -> None:
    for index, name, count in ((1, "depth", 1), (2, "values", 2)):
        shape = _known(node.get(index))
        if shape is not None and (len(shape) > 1 or _unlike([*shape, 1][0], count)):
            raise node.unsupported(f"{name} (input {index}) must have {count} elements")


def _check_reverse_sequence(node: Node) -> None:
    time, batch = node.attr("time_axis", 0), node.attr("batch_axis", 1)
    if time == batch:
        raise invalid(node, "time_axis", f"it must differ from batch_axis={batch}")
    shape, lengths = _known(node.get(0)), _known(node.get(1))
    if shape is None or not (-2 <= time < 2 and -2 <= batch < 2) or len(shape) < 2:
        return
    if lengths is not None and (len(lengths) != 1 or _unlike(lengths[0], shape[batch])):
        raise node.unsupported(f"sequence_lens (input 1) must have {shape[batch]} elements")
    _check_lengths(node, 1, shape[time])


def _check_lengths(node: Node, index: int, steps: Any) -> None:
    """Check known sequence lengths against the number of time steps."""
    array = constant_value(node.get(index))
    if array is None or not array.size or not isinstance(steps, int):
        return
    if array.min() < 0 or array.max() > steps:
        raise node.unsupported(
            f"sequence_lens={array.tolist()} is invalid: lengths must be between 0 and {steps}"
        )


def _check_resize(node: Node) -> None:
    first = {"Upsample": 1, "Resize": 1 if node.opset < 11 else 2}[node.proto.op_type]
    if node.proto.op_type == "Upsample" and node.attr("mode") == "bilinear" and node.opset >= 7:
        raise invalid(node, "mode", "expected one of nearest, linear, cubic")
    array = constant_value(node.get(first))
    scales = node.attr("scales", ()) if array is None else array.reshape(-1).tolist()
    if node.proto.op_type == "Upsample":
        if not all(scale >= 1 for scale in scales):
            raise node.unsupported(f"scales={list(scales)} is invalid: it must be at least 1")
        return
    if not all(scale > 0 for scale in scales):
        raise node.unsupported(f"scales={list(scales)} is invalid: it must be positive")
    if node.attr("mode", "nearest") == "nearest":
        for name in ("antialias", "exclude_outside"):
            if node.attr(name, 0):
                raise invalid(node, name, "the mode nearest takes 0 only")
    if node.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        shape, region = _known(node.get(0)), _known(node.get(1))
        axes = node.attr("axes") or shape
        if axes is not None and (region is None or _unlike(region[0], 2 * len(axes))):
            raise invalid(
                node,
                "coordinate_transformation_mode",
                f"roi (input 1) must have {2 * len(axes)} elements",
            )


_GATES = {"RNN": (1, 1), "GRU": (3, 2), "LSTM": (4, 3)}
"""Recurrent operators: the number of gates and of activations of one direction."""


def _check_recurrent(node: Node) -> None:
    kind = node.proto.op_type
    gates, functions = _GATES[kind]
    directions = 2 if node.attr("direction", "forward") == "bidirectional" else 1
    clip = node.attr("clip")
    if clip is not None and (clip < 0 or (clip == 0 and kind != "RNN")):
        raise invalid(node, "clip", "it must be positive")
    if len(node.attr("activations", ())) not in (0, functions * directions):
        raise invalid(node, "activations", f"{functions * directions} names are needed")
    data, recurrent = _known(node.get(0)), _known(node.get(2))
    if recurrent is None or len(recurrent) != 3 or not isinstance(recurrent[2], int):
        return
    hidden, width = recurrent[2], data[2] if data is not None and len(data) == 3 else None
    if node.attr("hidden_size", hidden) != hidden:
        raise invalid(node, "hidden_size", f"R (input 2) has a hidden size of {hidden}")
    for index, name, shape in (
        (1, "W", [directions, gates * hidden, width]),
        (2, "R", [directions, gates * hidden, hidden]),
        (3, "B", [directions, 2 * gates * hidden]),
        (7, "P", [directions, 3 * hidden]),
    ):
        given = _known(node.get(index))
        if given is None:
            continue
        if len(given) != len(shape) or any(map(_unlike, given, shape)):
            raise node.unsupported(
                f"{name} (input {index}) of shape {given} does not fit {directions} directions "
                f"of hidden size {hidden}: expected {shape}"
            )
    if data is not None and len(data) == 3:
        _check_lengths(node, 4, data[node.attr("layout", 0)])


_RULES: dict[str, Callable[[Node], None]] = {
    **dict.fromkeys(["GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"], _check_global_pool),
    **dict.fromkeys(_GATES, _check_recurrent),
    **dict.fromkeys(["Resize", "Upsample"], _check_resize),
    "CausalConvWithState": _check_causal_convolution,
    "OneHot": _check_one_hot,
    "ReverseSequence": _check_reverse_sequence,
    "Split": _check_split,
    "TopK": _check_top_k,
    "Transpose": _check_transpose,
}
