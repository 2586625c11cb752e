"""Operators of opsets 1 to 6 against numpy: no other library runs them all."""

import numpy as np
import pytest
from onnx import helper

from compiler import errors
from compiler.relay.frontend import from_onnx

RNG = np.random.default_rng(0)
X, SQUARE = (RNG.normal(size=shape).astype("float32") for shape in ((2, 3, 4, 5), (2, 3, 3)))
CHANNELS, PLANES = (RNG.normal(size=shape).astype("float32") for shape in ((3,), (3, 4)))
A, B = (RNG.normal(size=shape).astype("float32") for shape in ((3, 5), (4, 5)))
WIDE = CHANNELS[:, None, None]
GEMM = {"transB": 1, "alpha": 0.5, "beta": 2.0}
PRODUCT = 0.5 * A @ B.T


def leaky(x, slope):
    return np.where(x < 0, x * slope, x)


CASES = {
    "a product of a channel each": ("Mul", [X, CHANNELS], {"broadcast": 1, "axis": 1}, X * WIDE),
    "axes from the middle on": (
        "Add", [X, PLANES], {"broadcast": 1, "axis": -3}, X + PLANES[:, :, None]),
    "the last axes by default": ("Sub", [X, X[0, 0]], {"broadcast": 1}, X - X[0, 0]),
    "comparisons too": ("Less", [X, CHANNELS], {"broadcast": 1, "axis": 1}, X < WIDE),
    "Gemm with a row": ("Gemm", [A, B, PLANES[0]], {"broadcast": 1, **GEMM},
                        PRODUCT + 2 * PLANES[0]),
    "Gemm with a matrix": ("Gemm", [A, B, PLANES], GEMM, PRODUCT + 2 * PLANES),
    "a slope for each channel": ("PRelu", [X, CHANNELS], {}, leaky(X, WIDE)),
    "channels are axis 1, not the last": (
        "PRelu", [SQUARE, CHANNELS], {}, leaky(SQUARE, CHANNELS[:, None])),
    "one slope": ("PRelu", [X, CHANNELS[:1]], {}, leaky(X, CHANNELS[0])),
    "one output is inference": (
        "BatchNormalization", [X, *[CHANNELS**2] * 4], {"epsilon": 0.0},
        (X - WIDE**2) / np.abs(WIDE) * WIDE**2 + WIDE**2),
    "dropout that drops nothing": ("Dropout", [X], {"is_test": 1}, X),
}  # fmt: skip

OF_OPSET_1 = {
    "Cast": ([X], {"to": "INT32"}, X.astype("int32")),
    "Concat": ([X, X], {}, np.concatenate([X, X], 1)),
    "Pad": ([X], {"paddings": [0, 0, 1, 0, 0, 0, 0, 2]},
            np.pad(X, [(0, 0), (0, 0), (1, 0), (0, 2)])),
    "Reshape": ([X], {"shape": [0, -1]}, X.reshape(2, -1)),
    "Selu": ([X], {"gamma": 2.0}, np.where(X > 0, 2 * X, 2 * 1.6732 * np.expm1(X))),
    "Split": ([X, np.array([1, 2])], {"axis": 1}, X[:, :1]),
    "Tile": ([X, np.array([2]), np.array([1])], {}, np.tile(X, (1, 2, 1, 1))),
    "Upsample": ([X], {"height_scale": 2.0, "width_scale": 1.0}, X.repeat(2, 2)),
}  # fmt: skip


def imported(model, op, values, attributes, opset, outputs=1, known=()):
    names = [f"x{i}" for i in range(len(values))]
    fixed = {name: v for name, v in zip(names, values) if v.dtype == "int64" or name in known}
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, **attributes)
    free = {name: value for name, value in zip(names, values) if name not in fixed}
    shapes = {name: value.shape for name, value in free.items()}
    return from_onnx(model([node], shapes, results, fixed, opset=opset)), free


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_operators_of_opset_6(case, known, model, run):
    op, values, attributes, want = CASES[case]
    names = [f"x{i}" for i in range(1, len(values))] if known else []
    (mod, params), free = imported(model, op, values, attributes, 6, known=names)
    (got,) = run(mod, params, free)
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)


@pytest.mark.parametrize("op", OF_OPSET_1)
def test_operators_of_opset_1(op, model, run):
    values, attributes, want = OF_OPSET_1[op]
    (mod, params), free = imported(model, op, values, attributes, 1, 1 + (op == "Split"))
    np.testing.assert_allclose(run(mod, params, free)[0], want, 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("op", "values", "attributes", "why"),
    [
        ("Mul", [X, CHANNELS], {}, "broadcast=1"),
        ("Mul", [X, CHANNELS], {"broadcast": 1}, "can't be broadcast"),
        ("Gemm", [A, B, PLANES[0]], {}, "broadcast=1"),
        ("Dropout", [X], {}, "random"),
        ("Cast", [X], {"to": "INT33"}, "INT33"),
        ("Split", [X], {}, "axis"),
    ],
)
def test_what_an_old_node_leaves_open_is_refused(op, values, attributes, why, model):
    opset = 1 if op in ("Cast", "Split") else 6
    attributes = {"transB": 1, **attributes} if op == "Gemm" else attributes
    with pytest.raises(errors.UnsupportedOperatorError, match=why):
        imported(model, op, values, attributes, opset)
