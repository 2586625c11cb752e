"""Scales and zero points that quantize nothing are refused with their node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import relay
from compiler.errors import RelayTypeError, UnsupportedOperatorError

X8, X32 = ("x8", TensorProto.UINT8), ("x32", TensorProto.FLOAT)
SHAPES = {"x8": [1, 3, 4, 4], "x32": [2, 4]}
ONE = {"xs": 1.0, "xz": np.uint8(0), "ws": 1.0, "wz": np.int8(0), "ys": 1.0, "yz": np.uint8(0)}
OPERANDS = {
    "DequantizeLinear": ["m", "ws", "wz"],
    "QuantizeLinear": ["x32", "ys", "yz"],
    "QLinearConv": ["x8", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"],
    "QLinearMatMul": ["u", "xs", "xz", "m", "ws", "wz", "ys", "yz"],
    "MatMulInteger": ["u", "m", "xz", "wz"],
    "ConvInteger": ["x8", "w", "xz", "wz"],
}


def imported(operator: str, **numbers: Any) -> Any:
    """The import of a node "bad" with these scales, zero points or bias, else right ones."""
    values = {"b": np.zeros(6, "int32"), **ONE, **numbers}
    values |= {"w": np.zeros((6, 3, 1, 1), "int8"), "m": np.zeros((4, 3), "int8")}
    values["u"] = np.zeros((2, 4), "uint8")
    names = OPERANDS[operator]
    arrays = {name: np.asarray(values[name]) for name in names if name in values}
    floats = {name: each.astype("float32") for name, each in arrays.items() if each.dtype == "f8"}
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], name="bad")],
        "numbers",
        [
            helper.make_tensor_value_info(name, kind, SHAPES[name])
            for name, kind in (X8, X32)
            if name in names
        ],
        [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)],
        [numpy_helper.from_array(each, name) for name, each in {**arrays, **floats}.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return relay.frontend.from_onnx(model)


@pytest.mark.parametrize("operator", OPERANDS)
def test_right_numbers_are_imported(operator):
    assert imported(operator)[0]["main"] is not None


@pytest.mark.parametrize(
    ("operator", "numbers", "message"),
    [
        ("DequantizeLinear", {"ws": 0.0}, "a scale is 0"),
        ("DequantizeLinear", {"ws": np.nan}, "infinite or NaN"),
        ("DequantizeLinear", {"wz": np.uint8(0)}, "int8 has a zero point of uint8"),
        ("DequantizeLinear", {"ws": np.ones((4, 3)), "wz": np.int8(0)}, "without .* block_size"),
        (
            "DequantizeLinear",
            {"ws": np.ones(4), "wz": np.zeros(3, "int8")},
            "is 4, of zero points 3",
        ),
        ("DequantizeLinear", {"ws": np.ones(5), "wz": np.zeros(5, "int8")}, "Size mismatch"),
        ("QuantizeLinear", {"ys": np.inf}, "infinite or NaN"),
        ("QuantizeLinear", {"ys": np.ones(3), "yz": np.zeros(3, "uint8")}, "Size mismatch"),
        ("QLinearConv", {"xs": 0.0}, "a scale is 0"),
        ("QLinearConv", {"xs": np.ones(3), "xz": np.zeros(3, "uint8")}, "operand 1 .* one number"),
        ("QLinearConv", {"ys": np.ones(6), "yz": np.zeros(6, "uint8")}, "operand 6 .* one number"),
        ("QLinearConv", {"ws": np.ones(4), "wz": np.zeros(4, "int8")}, "Size mismatch"),
        ("QLinearConv", {"wz": np.uint8(0)}, "int8 has a zero point of uint8"),
        ("QLinearConv", {"b": np.zeros(6, "float32")}, "bias of float32"),
        ("QLinearMatMul", {"ys": np.nan}, "infinite or NaN"),
        ("QLinearMatMul", {"ws": np.ones(2), "wz": np.zeros(2, "int8")}, "Size mismatch"),
        ("MatMulInteger", {"xz": np.int8(0)}, "uint8 has a zero point of int8"),
        ("MatMulInteger", {"wz": np.float32(0)}, "int8 has a zero point of float32"),
        ("ConvInteger", {"wz": np.uint8(0)}, "int8 has a zero point of uint8"),
    ],
)
def test_wrong_numbers_are_refused(operator, numbers, message):
    with pytest.raises(UnsupportedOperatorError, match=f"{operator}.*'bad'.*{message}"):
        imported(operator, **numbers)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_relay_refuses_such_scales(scale):
    data = relay.var("x", shape=(2, 4))
    with pytest.raises(RelayTypeError, match=r"qnn\.quantize.*a scale must be"):
        numbers = relay.const(np.float32(scale)), relay.const(0, "int32")
        relay.transform.InferType()(
            tvm.IRModule.from_expr(relay.qnn.op.quantize(data, *numbers, out_dtype="uint8"))
        )


@pytest.mark.parametrize("operator", ["dequantize", "requantize"])
def test_relay_refuses_zero_points_that_are_not_integers_of_the_type(operator):
    data = relay.var("x", shape=(2, 4), dtype="uint8")
    numbers = [relay.const(1.0), relay.const(300, "int32")]
    if operator == "requantize":
        numbers += [relay.const(1.0), relay.const(0, "int32")]
    with pytest.raises(RelayTypeError, match="zero point of uint8 must be from 0 to 255"):
        made = getattr(relay.qnn.op, operator)(data, *numbers)
        relay.transform.InferType()(tvm.IRModule.from_expr(made))


SCALES = [1.0] * 7
WRONG = {
    "a scale must be": [{"sw": float("nan")}, {"sx": 0.0}, {"sw": [*SCALES, -1.0]}],
    "there are 5 scales along an axis of 8": [{"sw": [1.0] * 5}],
    "zero point of uint8 must be from 0 to 255": [{"zx": 256}],
    "zero point of int8 must be from -128 to 127": [{"zw": 128}],
}


@pytest.mark.parametrize("operator", ["conv2d", "dense"])
@pytest.mark.parametrize(
    ("message", "numbers"), [(key, each) for key, all_ in WRONG.items() for each in all_]
)
def test_relay_refuses_wrong_numbers_of_products(operator, message, numbers):
    given = {"zx": 0, "zw": 0, "sx": 1.0, "sw": [*SCALES, 1.0], **numbers}
    operands = [relay.const(given[name], "int32") for name in ("zx", "zw")]
    operands += [relay.const(np.float32(given[name]), "float32") for name in ("sx", "sw")]
    taps, attrs = ((3, 3), {"kernel_size": (3, 3), "channels": 8})
    if operator == "dense":
        taps, attrs = (), {"units": 8}
    data = relay.var("x", shape=(1, 4, 5, 5) if taps else (2, 4), dtype="uint8")
    weight = relay.const(np.zeros((8, 4, *taps), "int8"))
    with pytest.raises(RelayTypeError, match=rf"qnn\.{operator}\(.*{message}"):
        made = getattr(relay.qnn.op, operator)(data, weight, *operands, **attrs)
        relay.transform.InferType()(tvm.IRModule.from_expr(made))
