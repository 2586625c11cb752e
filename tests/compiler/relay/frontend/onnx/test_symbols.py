"""ONNX models with extents that only running tells, from the file to the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import tirx

from compiler import relay
from compiler.errors import BuildError, InputError, UnsupportedOperatorError
from compiler.ir.dynamic_shape import of_types, simplified
from compiler.relay.op.shapes import proven_joint, same_extent
from compiler.runtime import graph_executor, load_module

from ..conftest import make_model

NODE = helper.make_node

RNG = np.random.default_rng(0)
INT64 = TensorProto.INT64


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def integers(*values: int) -> np.ndarray:
    return np.array(values, "int64")


def texts(*tail: int) -> list[dict[str, np.ndarray]]:
    """An operand x of batch, length and the given extents, of several extents."""
    return [{"x": floats(batch, length, *tail)} for batch, length in ((1, 6), (3, 1), (2, 7))]


def attention_shape() -> list[Any]:
    """(batch, length, 2, 4) as exporters compute it."""
    return [
        NODE("Shape", ["x"], ["shape"]),
        NODE("Gather", ["shape", "i0"], ["batch_scalar"]),
        NODE("Gather", ["shape", "i1"], ["length_scalar"]),
        NODE("Unsqueeze", ["batch_scalar", "zero"], ["batch"]),
        NODE("Unsqueeze", ["length_scalar", "zero"], ["length"]),
        NODE("Concat", ["batch", "length", "heads", "width"], ["wanted"], axis=0),
    ]


def attention_over(nodes: list[Any]) -> list[Any]:
    """Nodes from s to r (batch, 8, length), and an attention over r with two heads."""
    split = [
        node
        for each in "qkv"
        for node in (
            NODE("MatMul", ["x", f"w{each}"], [f"flat_{each}"]),
            NODE("Reshape", [f"flat_{each}", "wanted"], [f"split_{each}"]),
        )
    ]
    return [
        *nodes,
        NODE("Transpose", ["r"], ["x"], perm=[0, 2, 1]),
        *attention_shape(),
        *split,
        NODE("Transpose", ["split_q"], ["q"], perm=[0, 2, 1, 3]),
        NODE("Transpose", ["split_k"], ["k"], perm=[0, 2, 3, 1]),
        NODE("Transpose", ["split_v"], ["v"], perm=[0, 2, 1, 3]),
        NODE("MatMul", ["q", "k"], ["scores"]),
        NODE("Softmax", ["scores"], ["weights"], axis=-1),
        NODE("MatMul", ["weights", "v"], ["y"]),
    ]


def loop_body(
    nodes: list[Any],
    states: dict[str, tuple[int, list[Any]]],
    stacked: dict[str, tuple[int, list[Any]]] | None = None,
) -> Any:
    """The body of a Loop whose states, given with dtypes and shapes, become `<name>_next`."""
    value = helper.make_tensor_value_info
    counter = [value("i", INT64, []), value("c", TensorProto.BOOL, [])]
    results = [value(f"{name}_next", *given) for name, given in states.items()]
    results += [value(name, *given) for name, given in (stacked or {}).items()]
    inputs = [*counter, *(value(name, *given) for name, given in states.items())]
    return helper.make_graph(nodes, "body", inputs, [value("go", TensorProto.BOOL, []), *results])


def resized(mode: str, scale: float) -> Any:
    """A Resize of images of any size by a constant scale."""
    return (
        [NODE("Resize", ["x", "", "scales"], ["y"], mode=mode)],
        {"x": ("b", 3, "h", "w")},
        {"scales": np.array([1, 1, scale, scale], "float32")},
        [{"x": floats(b, 3, h, w)} for b, h, w in ((1, 4, 6), (2, 7, 2))],
    )


WINDOWS: tuple[dict[str, Any], ...] = (
    {"auto_pad": "SAME_UPPER"},
    {"auto_pad": "SAME_LOWER"},
    {"ceil_mode": 1},
    {"ceil_mode": 1, "pads": [1, 0, 1, 1]},
    {"ceil_mode": 1, "pads": [1, 1, 1, 1], "count_include_pad": 1},
)


def windows(op: str, attributes: dict[str, Any]) -> Any:
    """A window of 3 and a stride of 2 over images of any size."""
    if op == "MaxPool":
        attributes = {key: value for key, value in attributes.items() if "count" not in key}
    operands = ["x", "w"] if op == "Conv" else ["x"]
    return (
        [NODE(op, operands, ["y"], kernel_shape=[3, 3], strides=[2, 2], **attributes)],
        {"x": ("b", 2, "h", "w_")},
        {"w": floats(2, 2, 3, 3)} if op == "Conv" else {},
        [{"x": floats(b, 2, h, w)} for b, h, w in ((1, 7, 8), (2, 3, 10))],
    )


def cells(kind: str, direction: str, attributes: dict[str, Any]) -> Any:
    """A recurrent layer that `nn.recurrent` does not have, over sequences of any length."""
    gates, ways = {"GRU": 3, "LSTM": 4, "RNN": 1}[kind], 1 + (direction == "bidirectional")
    every: dict[str, Any] = {"hidden_size": 4, "direction": direction, **attributes}
    return (
        [NODE(kind, ["x", "w", "r", "b_"], ["y", "h"], **every)],
        {"x": ("s", "b", 3)},
        {
            "w": floats(ways, 4 * gates, 3),
            "r": floats(ways, 4 * gates, 4),
            "b_": floats(ways, 8 * gates),
        },
        [{"x": floats(s, b, 3)} for s, b in ((1, 2), (5, 3))],
    )


SHAPE_WEIGHTS = {
    "i0": np.array(0),
    "i1": np.array(1),
    "zero": integers(0),
    "one": integers(1),
    "heads": integers(2),
    "width": integers(4),
}
X8 = {"x": ("batch", "seq", 8)}
X2 = {"x": ("batch", "seq")}
IMAGES = {"x": ("batch", 3, 8, 8)}
PICTURES = [{"x": floats(batch, 3, 8, 8)} for batch in (1, 3)]

CASES: dict[str, Any] = {
    **{
        f"numbers from {first} to {last} by {step}": (
            [
                NODE("Shape", ["x"], ["shape"]),
                NODE("Gather", ["shape", "i1"], ["n"]),
                NODE("Neg", ["n"], ["minus"]),
                NODE("Range", [first, last, "step"], ["numbers"]),
                NODE("Cast", ["numbers"], ["y"], to=TensorProto.FLOAT),
            ],
            X2,
            SHAPE_WEIGHTS | {"five": np.array(5), "step": np.array(step)},
            texts(),
        )
        for first, last, step in (
            ("n", "minus", -1),
            ("n", "i0", -3),
            ("i1", "n", 2),
            ("five", "n", 1),
            ("n", "five", 1),
        )
    },
    **{
        f"parts of {sizes}": (
            [
                NODE("Shape", ["x"], ["shape"]),
                NODE("Slice", ["shape", "one", "i2"], ["n"]),
                NODE("Div", ["n", "i2"], ["half"]),
                NODE("Sub", ["n", sizes[0]], ["rest"]),
                NODE("Concat", list(sizes), ["sizes"], axis=0),
                NODE("Split", ["x", "sizes"], ["a", "b"], axis=1),
                NODE("Concat", ["b", "a"], ["y"], axis=1),
            ],
            X2,
            SHAPE_WEIGHTS | {"i2": integers(2)},
            texts(),
        )
        for sizes in (("half", "rest"), ("one", "rest"))
    },
    "tokens moved by one": (
        [NODE("Pad", ["x", "pads"], ["moved"]), NODE("Sub", ["x", "moved"], ["y"])],
        X8,
        {"pads": integers(0, 1, 0, 0, -1, 0)},
        [*texts(8), {"x": floats(2, 0, 8)}],
    ),
    **{
        f"{mode} pads that cut off": (
            [NODE("Pad", ["x", "pads"], ["y"], mode=mode)],
            X8,
            {"pads": integers(0, -1, 1, 0, 0, -2)},
            [{"x": floats(batch, length, 8)} for batch, length in ((1, 6), (3, 4))],
        )
        for mode in ("constant", "edge", "reflect")
    },
    **{
        f"mask of {value}": (
            [
                NODE("Shape", ["x"], ["shape"]),
                NODE(
                    "ConstantOfShape",
                    ["shape"],
                    ["mask"],
                    value=helper.make_tensor("value", TensorProto.FLOAT, [1], [value]),
                ),
                NODE("Trilu", ["mask"], ["y"]),
            ],
            X2,
            {},
            texts(),
        )
        for value in (-np.inf, np.nan)
    },
    "tiles as many as another operand's batch": (
        [
            NODE("Shape", ["x"], ["shape"]),
            NODE("Gather", ["shape", "i0"], ["batch_scalar"]),
            NODE("Unsqueeze", ["batch_scalar", "zero"], ["batch"]),
            NODE("Concat", ["batch", "one", "one"], ["counts"], axis=0),
            NODE("Tile", ["z", "counts"], ["tiles"]),
            NODE("Concat", ["tiles", "x"], ["joined"], axis=1),
            NODE("LayerNormalization", ["joined", "scale"], ["y"]),
        ],
        X8 | {"z": (1, "t", 8)},
        SHAPE_WEIGHTS | {"scale": floats(8)},
        [each | {"z": floats(1, 3, 8)} for each in texts(8)],
    ),
    "tiles along one axis by a number of an operand": (
        [
            NODE("Concat", ["one", "i", "one"], ["counts"], axis=0),
            NODE("Tile", ["x", "counts"], ["tiles"]),
            NODE("LayerNormalization", ["tiles", "scale"], ["y"]),
        ],
        X8 | {"i": (1,)},
        SHAPE_WEIGHTS | {"scale": floats(8)},
        [each | {"i": integers(count)} for each, count in zip(texts(8), (3, 1, 0))],
    ),
    "widths of a pad in the order of torch": (
        [
            NODE("Shape", ["x"], ["shape"]),
            NODE("Slice", ["shape", "one", "i2"], ["length"]),
            NODE("Mod", ["length", "i2"], ["odd"]),
            NODE("Concat", ["zero", "zero", "zero", "odd", "zero", "zero"], ["flat"], axis=0),
            NODE("Reshape", ["flat", "pairs"], ["rows"]),
            NODE("Slice", ["rows", "last", "none", "zero", "last"], ["turned"]),
            NODE("Transpose", ["turned"], ["columns"], perm=[1, 0]),
            NODE("Reshape", ["columns", "last"], ["pads"]),
            NODE("Pad", ["x", "pads"], ["padded"]),
            NODE("Slice", ["padded", "zero", "largest", "one", "i2"], ["even"]),
            NODE("Slice", ["padded", "one", "largest", "one", "i2"], ["uneven"]),
            NODE("Concat", ["even", "uneven"], ["joined"], axis=-1),
            NODE("LayerNormalization", ["joined", "scale"], ["y"]),
        ],
        X8,
        SHAPE_WEIGHTS
        | {
            "scale": floats(16),
            "i2": integers(2),
            "last": integers(-1),
            "none": integers(-(2**63)),
            "largest": integers(2**63 - 1),
            "pairs": integers(-1, 2),
        },
        texts(8),
    ),
    "lengths rounded up as floats": (
        [
            NODE("Shape", ["x"], ["shape"]),
            NODE("Gather", ["shape", "i1"], ["length"]),
            NODE("Cast", ["length"], ["float"], to=TensorProto.FLOAT),
            NODE("Div", ["float", "two"], ["half"]),
            NODE("Ceil", ["half"], ["up"]),
            NODE("Mul", ["two", "up"], ["whole"]),
            NODE("Cast", ["whole"], ["even"], to=INT64),
            NODE("Sub", ["even", "length"], ["odd_scalar"]),
            NODE("Unsqueeze", ["odd_scalar", "zero"], ["odd"]),
            NODE("Concat", ["zero", "zero", "zero", "zero", "odd", "zero"], ["pads"], axis=0),
            NODE("Pad", ["x", "pads"], ["padded"]),
            NODE("Div", ["whole", "two"], ["pairs_float"]),
            NODE("Floor", ["pairs_float"], ["pairs_floor"]),
            NODE("Cast", ["pairs_floor"], ["pairs_scalar"], to=INT64),
            NODE("Unsqueeze", ["pairs_scalar", "zero"], ["pairs"]),
            NODE("Concat", ["zero", "pairs", "two_ints"], ["wanted"], axis=0),
            NODE("Reshape", ["padded", "wanted"], ["split"]),
            NODE("LayerNormalization", ["split", "scale"], ["y"]),
        ],
        X8,
        SHAPE_WEIGHTS | {"two": np.float32(2), "two_ints": integers(2, -1), "scale": floats(8)},
        texts(8),
    ),
    "dense": (
        [
            NODE("MatMul", ["x", "w"], ["a"]),
            NODE("Add", ["a", "b"], ["c"]),
            NODE("Relu", ["c"], ["y"]),
        ],
        X8,
        {"w": floats(8, 16), "b": floats(16)},
        texts(8),
    ),
    "products of stacks": (
        [NODE("MatMul", ["x", "z"], ["y"])],
        {"x": ("b", 2, "s", 8), "z": ("b", 2, 8, "s")},
        {},
        [{"x": floats(b, 2, s, 8), "z": floats(b, 2, 8, s)} for b, s in ((1, 1), (2, 7))],
    ),
    "softmax": ([NODE("Softmax", ["x"], ["y"])], X2, {}, texts()),
    "layer norm": (
        [NODE("LayerNormalization", ["x", "g", "g"], ["y"])],
        X8,
        {"g": floats(8)},
        texts(8),
    ),
    "attention over groups of 64 samples": (
        attention_over([NODE("AveragePool", ["s"], ["r"], kernel_shape=[64], strides=[64])]),
        {"s": ("b", 8, "samples")},
        SHAPE_WEIGHTS | {f"w{each}": floats(8, 8) for each in "qkv"},
        [{"s": floats(b, 8, samples)} for b, samples in ((1, 64), (2, 500), (1, 1010))],
    ),
    "attention over the first five": (
        attention_over([NODE("Slice", ["s", "zero", "five", "length_axis"], ["r"])]),
        {"s": ("b", 8, "n")},
        SHAPE_WEIGHTS
        | {f"w{each}": floats(8, 8) for each in "qkv"}
        | {"five": integers(5), "length_axis": integers(2)},
        [{"s": floats(b, 8, n)} for b, n in ((1, 1), (2, 5), (1, 9))],
    ),
    "convolution of an even width without its last column": (
        [
            NODE("Conv", ["x", "w"], ["c"], pads=[2, 2]),
            NODE("Slice", ["c", "zero", "last", "length_axis"], ["s"]),
            NODE("Add", ["x", "s"], ["a"]),
            NODE("Transpose", ["a"], ["t"], perm=[0, 2, 1]),
            NODE("LayerNormalization", ["t", "g"], ["y"]),
        ],
        {"x": ("b", 3, "n")},
        {"w": floats(3, 3, 4), "last": integers(-1), "length_axis": integers(2), "g": floats(3)}
        | {"zero": integers(0)},
        [{"x": floats(b, 3, n)} for b, n in ((1, 1), (2, 6))],
    ),
    "image doubled before a convolution": (
        [
            NODE("Resize", ["x", "", "scales"], ["u"], mode="nearest"),
            NODE("Conv", ["u", "w"], ["y"], pads=[1, 1, 1, 1]),
        ],
        {"x": ("b", 4, "h", "w_")},
        {"scales": np.array([1, 1, 2, 2], "float32"), "w": floats(8, 4, 3, 3)},
        [{"x": floats(b, 4, h, w)} for b, h, w in ((1, 4, 6), (2, 7, 1))],
    ),
    "blocks of any image as channels": (
        [NODE("SpaceToDepth", ["x"], ["y"], blocksize=2)],
        {"x": ("b", 3, "h", "w")},
        {},
        [{"x": floats(b, 3, h, w)} for b, h, w in ((1, 4, 6), (2, 2, 8))],
    ),
    "local response normalization of any image": (
        [NODE("LRN", ["x"], ["y"], size=3)],
        {"x": ("b", 4, "h", "w")},
        {},
        [{"x": floats(b, 4, h, w)} for b, h, w in ((1, 4, 6), (2, 1, 5))],
    ),
    **{
        f"{op} of any image, {attributes}": windows(op, attributes)
        for op in ("MaxPool", "AveragePool", "LpPool", "Conv")
        for attributes in WINDOWS
        if "ceil_mode" not in attributes or op in ("MaxPool", "AveragePool")
    },
    **{
        f"{direction} {kind} of any length, {list(attributes)}": cells(kind, direction, attributes)
        for kind, direction, attributes in (
            ("GRU", "forward", {}),
            ("GRU", "bidirectional", {}),
            ("LSTM", "reverse", {"clip": 0.5}),
            ("RNN", "bidirectional", {"activations": ["Softsign", "Sigmoid"]}),
        )
    },
    "loop that stacks matrices": (
        [
            NODE(
                "Loop",
                ["i", "yes", "x"],
                ["y", "z"],
                body=loop_body(
                    [
                        NODE("Add", ["a", "x"], ["a_next"]),
                        NODE("Sigmoid", ["a"], ["s_next"]),
                        NODE("Identity", ["c"], ["go"]),
                    ],
                    {"a": (TensorProto.FLOAT, [None, None])},
                    {"s_next": (TensorProto.FLOAT, [None, None])},
                ),
            )
        ],
        {"x": ("b", "s"), "i": ()},
        {"yes": np.array(True)},
        [{**each, "i": np.array(n)} for each, n in zip(texts(), (2, 1, 3))],
    ),
    "linear by 2": resized("linear", 2.0),
    "linear by 0.5": resized("linear", 0.5),
    "cubic by 3": resized("cubic", 3.0),
    "nearest by 1.5": resized("nearest", 1.5),
    "loop that reads a tensor of twice an open extent": (
        [
            NODE("Concat", ["x", "x"], ["f"], axis=1),
            NODE(
                "Loop",
                ["count", "yes", "start"],
                ["y"],
                body=loop_body(
                    [
                        NODE("ReduceSum", ["f"], ["r"], keepdims=0),
                        NODE("Add", ["s", "r"], ["s_next"]),
                        NODE("Less", ["s_next", "limit"], ["go"]),
                    ],
                    {"s": (TensorProto.FLOAT, [])},
                ),
            ),
        ],
        X2,
        {
            "count": np.array(4),
            "yes": np.array(True),
            "start": np.array(0.5, "float32"),
            "limit": np.array(99, "float32"),
        },
        texts(),
    ),
    "loop whose state grows from no element, with weights in its body": (
        [
            NODE(
                "Loop",
                ["count", "yes", "x", "none"],
                ["last", "y"],
                body=loop_body(
                    [
                        NODE("MatMul", ["h", "w"], ["r"]),
                        NODE("Tanh", ["r"], ["h_next"]),
                        NODE("Concat", ["all", "h_next"], ["all_next"], axis=0),
                        NODE("Identity", ["c"], ["go"]),
                    ],
                    {"h": (TensorProto.FLOAT, ["b", 16]), "all": (TensorProto.FLOAT, [None, 16])},
                ),
            )
        ],
        {"x": ("b", 16)},
        {
            "count": np.array(3),
            "yes": np.array(True),
            "none": np.zeros((0, 16), "float32"),
            "w": floats(16, 16),
        },
        [{"x": floats(b, 16)} for b in (1, 3)],
    ),
    "layer norm of a sum of two batches": (
        [NODE("Add", ["x", "z"], ["s"]), NODE("LayerNormalization", ["s", "g"], ["y"])],
        {"x": ("b", "t", 8), "z": ("c", "t", 8)},
        {"g": floats(8)},
        [{"x": floats(b, t, 8), "z": floats(c, t, 8)} for b, c, t in ((2, 2, 3), (1, 3, 1))],
    ),
    "slopes of a sum of two batches": (
        [NODE("Add", ["x", "z"], ["s"]), NODE("PRelu", ["s", "g"], ["y"])],
        {"x": ("b", "t", 8), "z": ("c", "t", 8)},
        {"g": floats(8)},
        [{"x": floats(b, t, 8), "z": floats(c, t, 8)} for b, c, t in ((2, 2, 3), (1, 3, 1))],
    ),
    "skip around a signal that is halved and doubled": (
        [
            NODE("Conv", ["x", "w"], ["d"], strides=[2], pads=[1, 1]),
            NODE("ConvTranspose", ["d", "w"], ["u"], strides=[2], pads=[1, 1]),
            NODE("Add", ["u", "x"], ["s"]),
            NODE("Transpose", ["s"], ["q"], perm=[0, 2, 1]),
            NODE("LayerNormalization", ["q", "g"], ["y"]),
        ],
        {"x": ("b", 8, "t")},
        {"w": floats(8, 8, 4), "g": floats(8)},
        [{"x": floats(2, 8, 8)}, {"x": floats(1, 8, 10)}],
    ),
    "layer norm of tokens padded to a multiple of 4": (
        [
            NODE("Shape", ["x"], ["shape"]),
            NODE("Gather", ["shape", "i1"], ["t"]),
            NODE("Mod", ["t", "four"], ["r"]),
            NODE("Sub", ["four", "r"], ["q"]),
            NODE("Mod", ["q", "four"], ["p"]),
            NODE("Unsqueeze", ["p", "zero"], ["p1"]),
            NODE("Concat", ["zeros", "p1", "zero"], ["pads"], axis=0),
            NODE("Pad", ["x", "pads"], ["xp"]),
            NODE("LayerNormalization", ["xp", "g"], ["y"]),
        ],
        X8,
        {**SHAPE_WEIGHTS, "four": np.array(4), "zeros": integers(0, 0, 0, 0), "g": floats(8)},
        texts(8),
    ),
    "layer norm of rows whose number is computed": (
        [
            NODE("Abs", ["x"], ["a"]),
            NODE("ReduceMax", ["a"], ["m"], keepdims=0),
            NODE("Cast", ["m"], ["n"], to=INT64),
            NODE("Unsqueeze", ["n", "zero"], ["n1"]),
            NODE("Concat", ["n1", "eight"], ["rows"], axis=0),
            NODE("Expand", ["g", "rows"], ["wide"]),
            NODE("LayerNormalization", ["wide", "g"], ["y"]),
        ],
        {"x": ("n",)},
        {"zero": integers(0), "eight": integers(8), "g": floats(8)},
        [{"x": np.array([1.5, -3.5], "float32")}, {"x": np.array([2.0], "float32")}],
    ),
    "batch normalization of open channels": (
        [NODE("BatchNormalization", ["x", "g", "g", "g", "v"], ["y"])],
        {"x": ("n", "c", "t")},
        {"g": floats(8), "v": np.ones(8, "float32")},
        [{"x": floats(2, 8, 3)}, {"x": floats(1, 8, 1)}],
    ),
    "patches of 16 by 16": (
        [
            NODE("Conv", ["x", "w"], ["p"], strides=[16, 16]),
            NODE("Reshape", ["p", "tokens"], ["f"]),
            NODE("Transpose", ["f"], ["q"], perm=[0, 2, 1]),
            NODE("MatMul", ["q", "m"], ["y"]),
        ],
        {"x": (1, 3, "h", "w")},
        {"w": floats(8, 3, 16, 16) / 28, "tokens": integers(1, 8, -1), "m": floats(8, 4)},
        [{"x": floats(1, 3, h, w)} for h, w in ((32, 48), (16, 17), (40, 33))],
    ),
    "pooling": (
        [NODE("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])],
        {"x": ("b", 4, "h", "w")},
        {},
        [{"x": floats(b, 4, h, 9)} for b, h in ((1, 6), (2, 7))],
    ),
    "convolution": (
        [NODE("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), NODE("Relu", ["a"], ["y"])],
        IMAGES,
        {"w": floats(8, 3, 3, 3)},
        PICTURES,
    ),
    "convolution of any image": (
        [NODE("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2])],
        {"x": ("b", 3, "h", "w")},
        {"w": floats(8, 3, 3, 3)},
        [{"x": floats(b, 3, h, 11)} for b, h in ((1, 6), (2, 9))],
    ),
    "concatenation": (
        [NODE("Concat", ["x", "z"], ["y"], axis=1)],
        {"x": ("b", "s", 4), "z": ("b", "t", 4)},
        {},
        [
            {"x": floats(2, 3, 4), "z": floats(2, 5, 4)},
            {"x": floats(1, 1, 4), "z": floats(1, 2, 4)},
        ],
    ),
    "embedding": (
        [NODE("Gather", ["w", "x"], ["y"])],
        X2,
        {"w": floats(10, 8)},
        [{"x": RNG.integers(-10, 10, (2, 5))}],
    ),
    "last place": ([NODE("Gather", ["x", "i"], ["y"], axis=1)], X8, {"i": np.array(-1)}, texts(8)),
    "slices": (
        [NODE("Slice", ["x", "first", "last", "axes"], ["y"])],
        X8,
        {"first": integers(1), "last": integers(-1), "axes": integers(1)},
        texts(8),
    ),
    "positions up to the length": (
        [
            *attention_shape(),
            NODE("Slice", ["table", "zero", "length", "one"], ["p"]),
            NODE("Add", ["x", "p"], ["y"]),
        ],
        X8,
        {**SHAPE_WEIGHTS, "table": floats(1, 32, 8)},
        texts(8),
    ),
    "reshape with -1": (
        [NODE("Reshape", ["x", "wanted"], ["y"])],
        X8,
        {"wanted": integers(0, -1, 4)},
        texts(8),
    ),
    "reshape by arithmetic": (
        [
            *attention_shape(),
            NODE("Reshape", ["x", "wanted"], ["r"]),
            NODE("Transpose", ["r"], ["y"], perm=[0, 2, 1, 3]),
        ],
        X8,
        SHAPE_WEIGHTS,
        texts(8),
    ),
    "half of the length": (
        [
            *attention_shape(),
            NODE("Div", ["length", "heads"], ["half"]),
            NODE("Slice", ["x", "zero", "half", "one"], ["y"]),
        ],
        X8,
        SHAPE_WEIGHTS,
        texts(8),
    ),
    "expand": (
        [NODE("Shape", ["x"], ["shape"]), NODE("Expand", ["z", "shape"], ["y"])],
        {**X8, "z": (1, 1, 8)},
        {},
        [{**each, "z": floats(1, 1, 8)} for each in texts(8)],
    ),
    "causal mask": (
        [
            NODE("Shape", ["x"], ["shape"]),
            NODE("Gather", ["shape", "i1"], ["length"]),
            NODE("Range", ["i0", "length", "i1"], ["places"]),
            NODE("Unsqueeze", ["places", "zero"], ["columns"]),
            NODE("Unsqueeze", ["places", "one"], ["rows"]),
            NODE("LessOrEqual", ["columns", "rows"], ["seen"]),
            NODE("Where", ["seen", "x", "low"], ["y"]),
        ],
        {"x": ("b", "s", "s")},
        {**SHAPE_WEIGHTS, "low": np.array(-1e4, "float32")},
        [{"x": floats(b, s, s)} for b, s in ((1, 1), (2, 7))],
    ),
    "resize": (
        [NODE("Resize", ["x", "", "scales"], ["y"], mode="nearest")],
        {"x": ("b", 3, "h", "w")},
        {"scales": np.array([1, 1, 2, 2], "float32")},
        [{"x": floats(b, 3, h, 3)} for b, h in ((1, 4), (2, 5))],
    ),
    "halves": ([NODE("Split", ["x"], ["y", "z"], axis=1, num_outputs=2)], X8, {}, texts(8)[:1]),
    "padding": ([NODE("Pad", ["x", "p"], ["y"])], X2, {"p": integers(0, 1, 0, 2)}, texts()),
    "best of them": (
        [NODE("TopK", ["x", "k"], ["y", "i"])],
        {"x": ("b", "s")},
        {"k": integers(3)},
        texts()[::2],
    ),
    "mean over the length": (
        [NODE("ReduceMean", ["x", "one"], ["y"])],
        X8,
        SHAPE_WEIGHTS,
        texts(8),
    ),
    "recurrent layer": (
        [NODE("LSTM", ["x", "w", "r"], ["y", "h"], hidden_size=4)],
        {"x": ("s", "b", 3)},
        {"w": floats(1, 16, 3), "r": floats(1, 16, 4)},
        [{"x": floats(s, b, 3)} for s, b in ((1, 2), (5, 3))],
    ),
    "einsum": (
        [NODE("Einsum", ["x", "z"], ["y"], equation="bsd,btd->bst")],
        {"x": ("b", "s", 8), "z": ("b", "t", 8)},
        {},
        [{"x": floats(2, 3, 8), "z": floats(2, 5, 8)}],
    ),
}


def attention_nodes() -> list[Any]:
    """softmax(q k / 4 + mask) v of two heads of 16, as exporters write it."""
    nodes = [
        NODE("Shape", ["x"], ["shape"]),
        NODE("Slice", ["shape", "zero", "two"], ["lead"]),
        NODE("Concat", ["lead", "heads", "head"], ["split"], axis=0),
        NODE("Concat", ["lead", "minus"], ["joined"], axis=0),
    ]
    for kind, order in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        nodes += [
            NODE("MatMul", ["x", f"w{kind}"], [f"p{kind}"]),
            NODE("Reshape", [f"p{kind}", "split"], [f"r{kind}"]),
            NODE("Transpose", [f"r{kind}"], [f"t{kind}"], perm=order),
        ]
    return [
        *nodes,
        NODE("MatMul", ["tq", "tk"], ["scores"]),
        NODE("Mul", ["scores", "scale"], ["scaled"]),
        NODE("Unsqueeze", ["mask", "axes"], ["wide"]),
        NODE("Add", ["scaled", "wide"], ["masked"]),
        NODE("Softmax", ["masked"], ["weights"]),
        NODE("MatMul", ["weights", "tv"], ["mixed"]),
        NODE("Transpose", ["mixed"], ["behind"], perm=[0, 2, 1, 3]),
        NODE("Reshape", ["behind", "joined"], ["y"]),
    ]


def test_attention_of_any_length_is_one_kernel():
    weights = {
        **{f"w{kind}": floats(32, 32) for kind in "qkv"},
        **{"zero": integers(0), "two": integers(2), "heads": integers(2), "head": integers(16)},
        **{"minus": integers(-1), "axes": integers(1, 2), "scale": np.array(0.25, "float32")},
    }
    inputs = {"x": ("batch", "seq", 32), "mask": ("batch", "seq")}
    proto = make_model(attention_nodes(), inputs, ["y"], weights, opset=18)
    mod, params = relay.frontend.from_onnx(proto)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, "llvm", params=params)
    operators = [operator for kernel in library.report.kernels for operator in kernel.operators]
    assert operators.count("attention") == 1
    assert operators.count("nn.dense") == 1  # that of queries, keys and values
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for batch, length in ((1, 1), (2, 3), (1, 5), (1, 6), (2, 7), (1, 64), (1, 65), (3, 2)):
        mask = np.where(RNG.random((batch, length)) < 0.3, -1e4, 0).astype("float32")
        feeds = {"x": floats(batch, length, 32), "mask": mask}
        (got,), (wanted,) = run(executor, feeds), session.run(None, feeds)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def proto_of(name: str) -> Any:
    nodes, inputs, weights, _ = CASES[name]
    dtypes = {"x": INT64} if name == "embedding" else {"i": INT64}
    outputs = [each for each in ("y", "z", "h", "i") if any(each in node.output for node in nodes)]
    made = make_model(nodes, inputs, outputs, weights, dtypes=dtypes, opset=18)
    return made


def executor_of(proto: Any, bounds: dict[str, int] | None = None, **options: Any) -> Any:
    mod, params = relay.frontend.from_onnx(proto, **options)
    library = relay.build(relay.with_bounds(mod, bounds or {}), "llvm", params=params)
    return graph_executor.GraphModule(library["default"](tvm.cpu()))


def run(executor: Any, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    executor.set_input(**feeds)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


@pytest.mark.parametrize("name", CASES)
def test_one_library_serves_all_extents(name):
    proto = proto_of(name)
    executor = executor_of(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for feeds in CASES[name][-1]:
        for got, wanted in zip(run(executor, feeds), session.run(None, feeds), strict=True):
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["dense", "softmax", "layer norm", "convolution", "concatenation"])
def test_empty_extents_give_empty_results(name):
    (feeds, *_) = CASES[name][-1]
    empty = {key: value[:0] for key, value in feeds.items()}
    for result in run(executor_of(proto_of(name)), empty):
        assert result.shape[0] == 0


def test_symbols_and_bounds_are_shown_and_kept_by_a_file(tmp_path):
    proto = proto_of("dense")
    mod, params = relay.frontend.from_onnx(proto)
    library = relay.build(relay.with_bounds(mod, {"seq": 9}), "llvm", params=params)
    library.export_library(tmp_path / "dense.so")
    loaded = load_module(tmp_path / "dense.so")
    for each in (library, loaded):
        assert each.metadata.inputs[0].shape == ("batch", "seq", 8)
        assert each.metadata.outputs[0].shape == ("batch", "seq", 16)
        assert each.metadata.bounds == {"seq": 9}
        executor = graph_executor.GraphModule(each["default"](tvm.cpu()))
        shapes, _ = executor.get_input_info()
        assert shapes["x"] == ("batch", "seq", 8)
        (feeds, *_) = CASES["dense"][-1]
        (got,) = run(executor, feeds)
        np.testing.assert_allclose(got, run(executor_of(proto), feeds)[0], rtol=1e-6)


def test_extents_that_contradict_each_other_are_named():
    executor = executor_of(proto_of("products of stacks"), {"s": 8})
    with pytest.raises(
        InputError, match=r"'z'.*extent 5 along axis 3, expected 4.*'s'.*axis 2.*'x'"
    ):
        run(executor, {"x": floats(1, 2, 4, 8), "z": floats(1, 2, 8, 5)})
    with pytest.raises(InputError, match=r"'x'.*extent 9 along axis 2.*'s' is at most 8"):
        run(executor, {"x": floats(1, 2, 9, 8), "z": floats(1, 2, 8, 9)})
    with pytest.raises(InputError, match=r"'x' has the shape \(b, 2, s, 8\)"):
        run(executor, {"x": floats(1, 3, 4, 8), "z": floats(1, 2, 8, 4)})
    (got,) = run(executor, {"x": floats(1, 2, 4, 8), "z": floats(1, 2, 8, 4)})
    assert got.shape == (1, 2, 4, 4)


def test_a_bound_needs_a_symbol_and_a_number():
    mod, _ = relay.frontend.from_onnx(proto_of("dense"))
    with pytest.raises(BuildError, match=r"no symbolic extent 'length'.*batch, seq"):
        relay.with_bounds(mod, {"length": 4})
    with pytest.raises(BuildError, match="'seq' must be a positive integer"):
        relay.with_bounds(mod, {"seq": 0})


def test_the_end_of_a_table_is_a_bound():
    executor = executor_of(proto_of("positions up to the length"))
    assert executor.module.metadata.bounds == {"seq": 32}
    with pytest.raises(InputError, match="'seq' is at most 32"):
        run(executor, {"x": floats(1, 33, 8)})


def test_names_none_and_any_are_extents():
    proto = proto_of("products of stacks")
    shapes = {"x": ("b", 2, None, 8), "z": (relay.Any(), 2, 8, "t")}
    executor = executor_of(proto, shape=shapes)
    assert [info.shape for info in executor.module.metadata.inputs] == [
        ("b", 2, "s", 8),
        ("b", 2, 8, "t"),
    ]
    (got,) = run(executor, {"x": floats(1, 2, 3, 8), "z": floats(1, 2, 8, 5)})
    assert got.shape == (1, 2, 3, 5)


def test_a_number_for_a_named_extent_holds_for_all_inputs():
    executor = executor_of(proto_of("products of stacks"), shape={"x": (2, 2, 5, 8)})
    assert [info.shape for info in executor.module.metadata.inputs] == [(2, 2, 5, 8), (2, 2, 8, 5)]


def test_extents_without_a_name_get_one():
    proto = proto_of("softmax")
    for dim in proto.graph.input[0].type.tensor_type.shape.dim:
        dim.ClearField("dim_param")
    executor = executor_of(proto)
    assert executor.module.metadata.inputs[0].shape == ("x_0", "x_1")


def test_relay_programs_have_names_for_extents():
    x, y = relay.var("x", shape=(relay.Any(), "n", 4)), relay.var("y", shape=("n", 4))
    library = relay.build(relay.Function([x, y], relay.add(x, y)), "llvm")
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    a, b = floats(2, 3, 4), floats(3, 4)
    (got,) = run(executor, {"x": a, "y": b})
    np.testing.assert_allclose(got, a + b)
    with pytest.raises(InputError, match=r"expected 3.*'n'"):
        run(executor, {"x": a, "y": floats(2, 4)})


def test_a_virtual_machine_runs_all_extents():
    mod, params = relay.frontend.from_onnx(proto_of("dense"))
    machine = relay.vm.VirtualMachine(relay.vm.compile(mod, "llvm", params=params), tvm.cpu())
    executor = executor_of(proto_of("dense"))
    for feeds in CASES["dense"][-1]:
        got = machine.invoke("main", feeds["x"])
        np.testing.assert_allclose(got.numpy(), run(executor, feeds)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_symbols_that_do_not_broadcast_are_an_error_when_the_model_runs(op):
    proto = make_model([NODE(op, ["x", "y"], ["z"])], {"x": ("b", "s"), "y": ("t",)}, ["z"])
    mod, params = relay.frontend.from_onnx(proto)
    session = relay.build(mod, "llvm", params=params).session(num_threads=1)
    numpy = {"Add": np.add, "Mul": np.multiply}[op]
    for left, right in (((2, 4), (4,)), ((2, 4), (1,)), ((2, 1), (4,))):
        x, y = np.full(left, 3, "float32"), np.arange(*right, dtype="float32")
        np.testing.assert_array_equal(session.run({"x": x, "y": y})["z"], numpy(x, y))
    for left, right in (((2, 4), (3,)), ((2, 3), (4,)), ((2, 90000), (3,))):
        with pytest.raises(InputError, match="neither equal nor 1"):
            session.run({"x": np.zeros(left, "float32"), "y": np.zeros(right, "float32")})


def test_few_updates_are_scattered_into_an_axis_of_unknown_extent(runs_as_onnxruntime):
    text = """<ir_version: 10, opset_import: ["": 17]> test (float[1,2,2,n] x, float[1,2,1,1] u)
    => (float[1,2,2,n] y) <int64[1,2,1,1] i> { y = ScatterElements <axis: int = 3> (x, i, u) }"""
    feeds = {"x": floats(1, 2, 2, 3), "u": floats(1, 2, 1, 1)}
    runs_as_onnxruntime(text, {"i": np.array([[[[1]], [[-1]]]])}, feeds)


def test_a_part_of_a_split_with_symbols_is_empty(runs_as_onnxruntime):
    text = """<ir_version: 10, opset_import: ["": 20]> test (float[n,3] x)
    => (float[n,1] a, float[n,1] b, float[n,1] c, float[n,0] d)
    { a, b, c, d = Split <axis: int = 1, num_outputs: int = 4> (x) }"""
    runs_as_onnxruntime(text, {}, {"x": floats(2, 3)})


LARGEST = np.array([[[1, 3, 3], [-np.inf, -np.inf, -np.inf]]], "float32")
SINGLE_OPERATORS: dict[str, tuple[int, str, list[np.ndarray]]] = {
    "hardmax along an open axis": (
        13,
        "(float[n,2,t] x) => (float[n,2,t] y) { y = Hardmax(x) }",
        [LARGEST, floats(2, 2, 0), floats(0, 2, 4), floats(3, 2, 1)],
    ),
    "hardmax of flattened open axes": (
        11,
        "(float[n,2,t] x) => (float[n,2,t] y) { y = Hardmax <axis: int = 1> (x) }",
        [LARGEST, floats(2, 2, 0), floats(0, 2, 4), floats(3, 2, 1)],
    ),
    "dequantize along a known axis": (
        23,
        "(int16[n,2,4] x) => (float[n,2,4] y) <float[4] s = {0.5, 2, 3, 4},"
        " int16[4] z = {-3, 2, 3, 0}> { y = DequantizeLinear <axis: int = 2> (x, s, z) }",
        [RNG.integers(-99, 99, (n, 2, 4)).astype("int16") for n in (4, 3, 1, 0)],
    ),
    "quantize along a known axis": (
        21,
        "(float[4,n,4] x) => (uint8[4,n,4] y) <float[4] s = {0.5, 2, 3, 4},"
        " uint8[4] z = {3, 2, 3, 0}> { y = QuantizeLinear <axis: int = -1> (x, s, z) }",
        [9 * floats(4, n, 4) for n in (4, 3, 1, 0)],
    ),
    "pool of images with channels last": (
        17,
        "(uint8[n,h,6,2] x) => (uint8[n,a,b,2] y)"
        " { y = com.microsoft.NhwcMaxPool <kernel_shape = [2,2], strides = [2,2]> (x) }",
        [RNG.integers(0, 255, (n, 4, 6, 2)).astype("uint8") for n in (2, 1)],
    ),
    "dropout with a mask": (
        12,
        "(float[n,t] x) => (float[n,t] y, bool[n,t] m) { y, m = Dropout(x) }",
        [floats(3, 2), floats(0, 4)],
    ),
    "dropout without the mask that it names": (
        19,
        "(float[n] x) => (float[n] y) { y, \"\" = Dropout(x) }",
        [floats(3)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SINGLE_OPERATORS)
def test_an_operator_with_an_open_axis_runs_as_onnxruntime(name, runs_as_onnxruntime):
    opset, graph, arrays = SINGLE_OPERATORS[name]
    text = f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1]> test {graph}'
    for x in arrays:
        runs_as_onnxruntime(text, {}, {"x": x})


def test_an_operator_that_needs_static_extents_says_how_to_give_them():
    graph = "(float[n,8,8] x) => (float[n] y) { y = Det(x) }"
    text = f'<ir_version: 10, opset_import: ["": 22]> test {graph}'
    said = r"give the model's inputs static extents.*\[float32\[n, 8, 8\]\]$"
    with pytest.raises(UnsupportedOperatorError, match=said):
        relay.frontend.from_onnx(onnx.parser.parse_model(text))


@pytest.mark.parametrize("lengths", [("n", "m"), ("n", 1), (3, "m")])
def test_keys_and_values_of_other_lengths_are_an_error_when_the_model_runs(lengths):
    keys, values = lengths
    graph = f"""(float[2,4,3,8] q, float[2,2,{keys},8] k, float[2,2,{values},8] v)
    => (float[2,4,3,8] y) {{ y = Attention(q, k, v) }}"""
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> test {graph}')
    session = relay.build(relay.frontend.from_onnx(proto)[0], "llvm").session(num_threads=1)
    fitting = 1 if values == 1 else 3
    feeds = {"q": floats(2, 4, 3, 8)} | {name: floats(2, 2, fitting, 8) for name in "kv"}
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(session.run(feeds)["y"], expected[0], 1e-5, 1e-5)
    with pytest.raises(InputError, match="extents known at run time do not agree"):
        session.run(feeds | {"k": floats(2, 2, 3, 8), "v": floats(2, 2, 1, 8)})


def test_static_keys_and_values_of_other_lengths_are_refused():
    graph = """(float[2,4,3,8] q, float[2,2,3,8] k, float[2,2,1,8] v) => (float[2,4,3,8] y)
    { y = Attention(q, k, v) }"""
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> test {graph}')
    with pytest.raises(UnsupportedOperatorError, match=r"K \(input 1\) has 3 positions along axis"):
        relay.frontend.from_onnx(proto)


def rolled_sum(*others: Any) -> list[Any]:
    """Nodes that add positions to z, then the sum rolled by half its length."""
    return [
        *others,
        NODE("Shape", ["z"], ["shape"]),
        NODE("Gather", ["shape", "i1"], ["length"]),
        NODE("Range", ["i0", "length", "i1"], ["places"]),
        NODE("Cast", ["places"], ["floats"], to=TensorProto.FLOAT),
        NODE("Unsqueeze", ["floats", "one"], ["column"]),
        NODE("Add", ["z", "column"], ["placed"]),
        NODE("Div", ["length", "i2"], ["half_scalar"]),
        NODE("Unsqueeze", ["half_scalar", "zero"], ["half"]),
        NODE("Slice", ["placed", "half", "far", "one"], ["back"]),
        NODE("Slice", ["placed", "zero", "half", "one"], ["front"]),
        NODE("Concat", ["back", "front"], ["rolled"], axis=1),
        NODE("Add", ["placed", "rolled"], ["y"]),
    ]


ROLLED = {
    **{f"i{number}": np.array(number, "int64") for number in range(3)},
    "zero": integers(0),
    "one": integers(1),
    "far": integers(2**62),
}


def test_a_joint_of_two_lengths_is_one_extent_for_all_later_operators():
    proto = joint_of_two_lengths(rolled_sum(NODE("Add", ["a", "b"], ["z"])))
    executor = executor_of(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for left, right in ((5, 5), (1, 4), (3, 1), (0, 0), (0, 1)):
        feeds = {"a": floats(2, left, 8), "b": floats(2, right, 8)}
        (wanted,) = session.run(None, feeds)
        np.testing.assert_allclose(run(executor, feeds)[0], wanted, 1e-5, 1e-5)


def joint_of_two_lengths(nodes: list[Any]) -> Any:
    shapes = {"a": ["batch", "left", 8], "b": ["batch", "right", 8]}
    return make_model(nodes, shapes, ["y"], ROLLED)


def test_batches_of_products_broadcast_at_run_time():
    shapes = {"a": ["left", 3, "k"], "b": ["right", "k", 5]}
    proto = make_model([NODE("MatMul", ["a", "b"], ["y"])], shapes, ["y"], {})
    executor = executor_of(proto)
    for left, right in ((2, 2), (1, 3), (3, 1), (0, 1)):
        feeds = {"a": floats(left, 3, 4), "b": floats(right, 4, 5)}
        np.testing.assert_allclose(run(executor, feeds)[0], feeds["a"] @ feeds["b"], 1e-5, 1e-5)


def test_operands_of_two_lengths_broadcast_in_a_model_with_branches():
    """Imports of models with branches stay in TVM's operators, which do not broadcast so."""
    kept, negated = (
        helper.make_graph([node], "branch", [], [helper.make_empty_tensor_value_info("chosen")])
        for node in (NODE("Identity", ["z"], ["chosen"]), NODE("Neg", ["z"], ["chosen"]))
    )
    nodes = [
        NODE("Sub", ["a", "b"], ["z"]),
        NODE("Shape", ["z"], ["shape"]),
        NODE("Gather", ["shape", "i1"], ["length"]),
        NODE("Greater", ["length", "i2"], ["is_long"]),
        NODE("If", ["is_long"], ["y"], then_branch=kept, else_branch=negated),
    ]
    proto = joint_of_two_lengths(nodes)
    executor = executor_of(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for left, right in ((5, 5), (1, 4), (2, 1)):
        feeds = {"a": floats(2, left, 8), "b": floats(2, right, 8)}
        np.testing.assert_array_equal(run(executor, feeds)[0], session.run(None, feeds)[0])


def test_rows_of_a_table_are_added_to_one_row_more_than_a_product_of_extents():
    """The extents of the sum and of its halves are known: no symbol is made for them."""
    nodes = [
        NODE("Conv", ["x", "taps"], ["map"], strides=[4, 4]),
        NODE("Reshape", ["map", "flat"], ["pixels"]),
        NODE("Transpose", ["pixels"], ["rows"], perm=[0, 2, 1]),
        NODE("Concat", ["rows", "row"], ["more"], axis=1),
        NODE("Shape", ["more"], ["more_shape"]),
        NODE("Slice", ["more_shape", "one", "two", "zero"], ["count"]),
        NODE("Slice", ["table", "zero", "count", "one"], ["used"]),
        NODE("Add", ["more", "used"], ["z"]),
    ]
    weights = {
        **ROLLED,
        "two": integers(2),
        "flat": integers(1, 8, -1),
        "taps": floats(8, 3, 4, 4),
        "row": floats(1, 1, 8),
        "table": floats(1, 16, 8),
    }
    shapes = {"x": [1, 3, "height", "width"]}
    mod, _ = relay.frontend.from_onnx(make_model(rolled_sum(*nodes), shapes, ["y"], weights))
    symbols = {str(symbol.name) for symbol in of_types(mod["main"])}
    assert symbols == {"height", "width"}


def test_parts_of_a_rolled_axis_add_up_to_the_axis():
    """As in windowed attention: padded to a multiple of 8, rolled by 4 and cut to its extent."""
    size, zero = tvm.tirx.Var("size", "int64"), tvm.tirx.const(0, "int64")
    padded = size + tvm.tirx.floormod(size * 7, 8)
    parts = tvm.tirx.min(tvm.tirx.const(4, "int64"), padded), tvm.tirx.max(padded - 4, zero)
    whole = simplified(parts[0] + parts[1])
    assert same_extent(whole, padded)
    assert proven_joint(size, tvm.tirx.min(size, whole)).same_as(size)


def test_a_norm_and_a_slope_of_open_axes_run(runs_as_onnxruntime):
    text = """<ir_version: 10, opset_import: ["": 17]> test
    (float[n,t] x, float[t] g, float[t] b, float[q] s) => (float[n,t] y, float[n,t] z)
    { u = LayerNormalization <axis: int = -1> (x, g, b) y = PRelu (u, s)
      z = LayerNormalization <axis: int = -1> (x, s) }"""
    feeds = {"x": floats(2, 5), "g": floats(5), "b": floats(5), "s": floats(5)}
    runs_as_onnxruntime(text, {}, feeds)


@pytest.mark.parametrize("batches", [(2, 2), (1, 2), (2, 1)])
def test_batches_of_an_einsum_broadcast_when_the_model_runs(runs_as_onnxruntime, batches):
    text = """<ir_version: 10, opset_import: ["": 17]> test (float[b,i,j] x, float[c,j,k] z)
    => (float[d,i,k] y) { y = Einsum <equation: string = "bij,bjk->bik"> (x, z) }"""
    left, right = batches
    runs_as_onnxruntime(text, {}, {"x": floats(left, 3, 4), "z": floats(right, 4, 5)})


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8, 13, 64])
def test_pads_to_multiples_keep_extents_small(size):
    def halves(extent: Any) -> Any:
        patches = (extent + simplified((4 - extent % 4) % 4) - 4) // 4 + 1
        return simplified((patches + simplified((2 - patches % 2) % 2) - 2) // 2 + 1)

    symbol = tirx.Var("h", "int64")
    analyzer = tvm.sym.Analyzer()
    analyzer.bind(symbol, tirx.const(size, "int64"))
    assert int(analyzer.simplify(halves(symbol))) == halves(size) == (size + 7) // 8
    assert len(str(halves(symbol))) < 80


def test_the_last_places_as_many_as_a_convolution_leaves(runs_as_onnxruntime):
    layers = "".join(
        f"y{k} = Conv <dilations = [{1 << k}]> (x{k}, w) s{k} = Shape <start = 2> (y{k})"
        f" b{k} = Neg (s{k}) t{k} = Slice (x{k}, b{k}, e, a) x{k + 1} = Add (y{k}, t{k})"
        for k in range(5)
    )
    text = f"""<ir_version: 10, opset_import: ["": 17]> test (float[n,2,l] x0) => (float[n,2,m] x5)
    <int64[1] a = {{2}}, int64[1] e = {{9223372036854775807}}> {{ {layers} }}"""
    weights = {"w": floats(2, 2, 2) / 2}
    runs_as_onnxruntime(text, weights, {"x0": floats(3, 2, 40)})
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights["w"], "w"))
    mod, params = relay.frontend.from_onnx(proto)
    with pytest.raises(InputError, match="needs at least 17 of l - 15"):
        relay.build(mod, "llvm", params=params).session().run({"x0": floats(3, 2, 31)})
