"""FakeQuantizationToInteger: which regions become integer arithmetic, and that results stay."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler import relay
from compiler.relay import transform
from compiler.relay.op.affine_type import TensorAffineType
from compiler.relay.testing.temp_op_attr import TempOpAttr
from tests.compiler.relay.transform.modules import module_of, operators_of

qnn = relay.qnn.op


def integers(name: str, *shape: int) -> Any:
    return relay.var(name, shape=shape, dtype="int8")


def real(value: Any, scale: float = 0.5, zero_point: int = 3) -> Any:
    return qnn.dequantize(value, relay.const(scale), relay.const(zero_point))


def quantized(value: Any, scale: float = 1.0, zero_point: int = 0) -> Any:
    return qnn.quantize(value, relay.const(scale), relay.const(zero_point), out_dtype="int8")


REGIONS: dict[str, Callable[[], Any]] = {
    "conv": lambda: relay.nn.conv2d(
        real(integers("x", 1, 4, 6, 6)), real(integers("w", 8, 4, 3, 3), 0.25, 0)
    ),
    "dense": lambda: relay.nn.dense(real(integers("x", 2, 8)), real(integers("w", 3, 8), 0.1, 0)),
    "relu": lambda: relay.nn.relu(real(integers("x", 2, 8))),
    "clip": lambda: relay.clip(real(integers("x", 2, 8)), -4.0, 6.0),
    "pool": lambda: relay.nn.max_pool2d(real(integers("x", 1, 4, 6, 6)), (2, 2)),
    "reshape": lambda: relay.reshape(real(integers("x", 2, 8)), (4, 4)),
    "maximum": lambda: relay.maximum(real(integers("x", 4)), real(integers("y", 4), 0.25, 0)),
    "add": lambda: relay.add(real(integers("x", 4)), real(integers("y", 4), 0.25, 0)),
    "concat": lambda: relay.concatenate(
        [real(integers("x", 4)), real(integers("y", 4), 0.25, 0)], axis=0
    ),
    "mean": lambda: relay.mean(real(integers("x", 2, 8)), axis=[1]),
}


@pytest.mark.parametrize("name", REGIONS)
def test_a_region_is_computed_on_integers_with_the_same_result(name: str) -> None:
    before = module_of(quantized(REGIONS[name]()))
    after = transform.FakeQuantizationToInteger(hard_fail=True)(before)
    assert not {"qnn.dequantize", "qnn.quantize"} & set(operators_of(after))
    rng = np.random.default_rng(1)
    values = [
        rng.integers(-128, 128, [int(n) for n in var.ty.shape.values]).astype("int8")
        for var in before["main"].params
    ]
    reference, mine = (
        relay.create_executor("graph", mod).evaluate()(*values).numpy() for mod in (before, after)
    )
    assert mine.dtype == reference.dtype == np.int8
    difference = np.abs(mine.astype(int) - reference.astype(int))
    assert difference.max() <= 1  # one step of rounding


def test_a_region_without_a_form_on_integers_stays_or_raises(caplog: Any) -> None:
    before = module_of(quantized(relay.sin(real(integers("x", 4)))))
    with caplog.at_level(logging.INFO, "baton.relay"):
        after = transform.FakeQuantizationToInteger()(before)
    assert operators_of(after) == operators_of(before)
    assert "sin has no form on integers" in caplog.text
    with pytest.raises(RuntimeError, match="sin has no form"):
        transform.FakeQuantizationToInteger(hard_fail=True)(before)


def test_scripts_register_forms_and_ask_for_optional_ones() -> None:
    def on_integers(expr: Any, types: Any) -> list[Any]:
        affine = types[expr.args[0]]
        assert isinstance(affine, TensorAffineType)
        assert affine.dtype == "int8"
        return [relay.negative(expr.args[0]), affine]

    before = module_of(quantized(relay.sin(real(integers("x", 4)))))
    with TempOpAttr("sin", "FTVMFakeQuantizationToInteger", on_integers):
        after = transform.FakeQuantizationToInteger(hard_fail=True)(before)
    assert set(operators_of(after)) == {"negative", "qnn.requantize"}

    softmax = module_of(quantized(relay.nn.softmax(real(integers("x", 2, 4))), 1 / 256, -128))
    for names, expected in ((None, "nn.softmax"), (["nn.softmax"], "qnn.softmax")):
        made = transform.FakeQuantizationToInteger(optional_qnn_ops=names)(softmax)
        assert expected in operators_of(made)


def test_single_operators_are_quantized_where_a_region_is_not() -> None:
    dense = relay.nn.dense(real(integers("x", 2, 8)), real(integers("w", 3, 8), 0.1, 0))
    before = module_of(relay.sin(dense))
    assert transform.FakeQuantizationToInteger()(before).same_as(before)
    after = transform.FakeQuantizationToInteger(use_qat=True)(before)
    assert operators_of(after) == {"qnn.dense": 1, "qnn.dequantize": 1, "sin": 1}
