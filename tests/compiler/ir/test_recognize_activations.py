"""Tests of the recognition of GELU and SiLU."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tvm import relax

from compiler.ir.recognize_activations import RecognizeGelu, RecognizeSilu

OPS = relax.op
TENSOR = ((4, 33), "float32")


def number(value):
    return relax.const(value, "float32")


def erf_gate(x):
    return OPS.add(OPS.erf(OPS.divide(x, number(1.41421354))), number(1.0))


def tanh_gate(x, cube):
    inner = OPS.add(x, OPS.multiply(number(0.044715), cube))
    return OPS.add(number(1.0), OPS.tanh(OPS.multiply(inner, number(0.7978845608))))


ERF_FORMS = {
    "(x * gate) * 0.5": lambda x: OPS.multiply(OPS.multiply(x, erf_gate(x)), number(0.5)),
    "(0.5 * x) * gate": lambda x: OPS.multiply(OPS.multiply(number(0.5), x), erf_gate(x)),
    "x * (0.5 * gate)": lambda x: OPS.multiply(x, OPS.multiply(number(0.5), erf_gate(x))),
    "(x * gate) / 2": lambda x: OPS.divide(OPS.multiply(erf_gate(x), x), number(2.0)),
    "x scaled by a product": lambda x: OPS.multiply(
        OPS.multiply(x, OPS.add(number(1.0), OPS.erf(OPS.multiply(x, number(math.sqrt(0.5)))))),
        number(0.5),
    ),
}
TANH_FORMS = {
    "power": lambda x: OPS.multiply(
        OPS.multiply(number(0.5), x), tanh_gate(x, OPS.power(x, number(3.0)))
    ),
    "products": lambda x: OPS.multiply(
        number(0.5), OPS.multiply(x, tanh_gate(x, OPS.multiply(OPS.multiply(x, x), x)))
    ),
    "factored": lambda x: OPS.multiply(
        OPS.multiply(x, number(0.5)),
        OPS.add(
            OPS.tanh(
                OPS.multiply(
                    OPS.multiply(x, number(math.sqrt(2 / math.pi))),
                    OPS.add(number(1.0), OPS.multiply(OPS.multiply(x, number(0.044715)), x)),
                )
            ),
            number(1.0),
        ),
    ),
}


@pytest.mark.parametrize("form", ERF_FORMS)
def test_every_erf_form_becomes_gelu(form, build, operators, run, rng):
    mod = RecognizeGelu()(build(lambda b, x: ERF_FORMS[form](x), x=TENSOR))
    assert operators(mod) == {"nn.gelu": 1}
    data = rng.normal(size=TENSOR[0]).astype("float32")
    erf = np.vectorize(math.erf)(data.astype("f8") / math.sqrt(2))
    np.testing.assert_allclose(run(mod, data), 0.5 * data * (1 + erf), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("form", TANH_FORMS)
def test_every_tanh_form_becomes_gelu_tanh(form, build, operators, run, rng):
    mod = RecognizeGelu()(build(lambda b, x: TANH_FORMS[form](x), x=TENSOR))
    assert operators(mod) == {"nn.gelu_tanh": 1}
    data = rng.normal(size=TENSOR[0]).astype("float32")
    wide = data.astype("f8")
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    np.testing.assert_allclose(
        run(mod, data), 0.5 * wide * (1 + np.tanh(inner)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    "body",
    [
        lambda b, x: OPS.multiply(x, erf_gate(x)),
        lambda b, x: OPS.multiply(OPS.multiply(x, number(0.5)), erf_gate(OPS.exp(x))),
        lambda b, x: OPS.multiply(OPS.multiply(x, OPS.add(OPS.erf(x), number(1.0))), number(0.5)),
        lambda b, x: OPS.multiply(OPS.multiply(x, tanh_gate(x, OPS.multiply(x, x))), number(0.5)),
    ],
    ids=["without the half", "gate of something else", "unscaled erf", "square for cube"],
)
def test_what_is_no_gelu_is_left_alone(body, build, operators):
    after = operators(RecognizeGelu()(build(body, x=TENSOR)))
    assert after["nn.gelu"] == after["nn.gelu_tanh"] == 0


def test_a_gate_that_is_read_elsewhere_is_not_computed_twice(build, operators):
    def body(builder, x):
        gate = builder.emit(erf_gate(x))
        half = builder.emit(OPS.multiply(x, number(0.5)))
        return OPS.add(gate, OPS.multiply(half, gate))

    assert operators(RecognizeGelu()(build(body, x=TENSOR)))["nn.gelu"] == 0


@pytest.mark.parametrize("swapped", [False, True])
def test_x_times_its_sigmoid_becomes_silu(swapped, build, operators, run, rng):
    def body(builder, x):
        gate = OPS.sigmoid(x)
        return OPS.multiply(gate, x) if swapped else OPS.multiply(x, gate)

    mod = RecognizeSilu()(build(body, x=TENSOR))
    assert operators(mod) == {"nn.silu": 1}
    data = rng.normal(size=TENSOR[0]).astype("float32")
    np.testing.assert_allclose(run(mod, data), data / (1 + np.exp(-data)), rtol=1e-5, atol=1e-6)


def test_a_gate_on_another_tensor_is_no_silu(build, operators):
    mod = build(lambda b, x, y: OPS.multiply(x, OPS.sigmoid(y)), x=TENSOR, y=TENSOR)
    assert operators(RecognizeSilu()(mod)) == {"multiply": 1, "sigmoid": 1}
