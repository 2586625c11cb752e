"""FoldScaleAxis: where scales go, when they stay, and that results stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler import relay
from compiler.relay import transform
from compiler.relay.dataflow_pattern import is_op, wildcard
from tests.compiler.relay.transform.modules import module_of, operators_of

POSITIVE = relay.const(np.arange(1, 5, dtype="float32").reshape(4, 1, 1))
MIXED = relay.const(np.arange(-2, 2, dtype="float32").reshape(4, 1, 1))


def conv(data: Any, groups: int = 1) -> Any:
    weight = relay.var("w", shape=(4, 4 // groups, 3, 3))
    return relay.nn.conv2d(data, weight, padding=(1, 1), groups=groups)


def picture() -> Any:
    return relay.var("data", shape=(1, 4, 6, 6))


def shift() -> Any:
    return relay.var("b", shape=(4, 1, 1))


@pytest.mark.parametrize("groups", [1, 4])
def test_a_scale_goes_forward_through_relu_and_sum(
    groups: int, same_values: Callable[..., None]
) -> None:
    scaled = relay.nn.relu(relay.multiply(picture(), POSITIVE))
    before = module_of(conv(relay.add(scaled, shift()), groups))
    after = transform.ForwardFoldScaleAxis()(before)
    assert operators_of(after)["divide"] == 1  # the shift takes the scale's inverse
    same_values(before, after)


@pytest.mark.parametrize("groups", [1, 4])
def test_a_scale_goes_backward_through_relu_and_sum(
    groups: int, same_values: Callable[..., None]
) -> None:
    result = relay.nn.relu(relay.add(conv(picture(), groups), shift()))
    before = module_of(relay.multiply(result, POSITIVE))
    after = transform.BackwardFoldScaleAxis()(before)
    assert list(operators_of(after)).count("nn.conv2d") == 1
    assert operators_of(after)["multiply"] == 2  # of the weight, and of the shift
    same_values(before, after)


def test_a_scale_of_any_sign_does_not_pass_relu() -> None:
    for before in (
        module_of(conv(relay.nn.relu(relay.multiply(picture(), MIXED)))),
        module_of(relay.multiply(relay.nn.relu(conv(picture())), MIXED)),
    ):
        assert operators_of(transform.FoldScaleAxis()(before)) == operators_of(before)


def test_a_value_that_something_else_reads_keeps_its_scale() -> None:
    data = relay.multiply(picture(), POSITIVE)
    before = module_of(relay.Tuple([conv(data), relay.exp(data)]))
    assert transform.ForwardFoldScaleAxis()(before).same_as(before)
    result = conv(picture())
    before = module_of(relay.Tuple([relay.multiply(result, POSITIVE), result]))
    assert operators_of(transform.BackwardFoldScaleAxis()(before)) == operators_of(before)


def test_scales_of_dense_layers_fold(same_values: Callable[..., None]) -> None:
    scale = relay.const(np.array([1, -2, 3], "float32"))
    dense = relay.nn.dense(
        relay.multiply(relay.var("x", shape=(2, 3)), scale), relay.var("w", shape=(5, 3))
    )
    before = module_of(relay.multiply(dense, relay.const(np.arange(5, dtype="float32"))))
    after = transform.FoldScaleAxis()(before)
    same_values(before, after)
    last = after["main"].body.blocks[0].bindings[-1].value
    assert str(last.op.name) == "nn.dense"


def test_nothing_is_divided_by_a_scale_of_zero(same_values: Callable[..., None]) -> None:
    before = module_of(conv(relay.add(relay.multiply(picture(), MIXED), shift())))
    after = transform.ForwardFoldScaleAxis()(before)
    assert "divide" not in operators_of(after)
    same_values(before, after)


def test_functions_of_a_pattern_stay_as_they_were_matched() -> None:
    before = module_of(relay.multiply(conv(picture()), POSITIVE))
    scaled = is_op("multiply")(is_op("nn.conv2d")(wildcard(), wildcard()), wildcard())
    merged = transform.MergeComposite([("mine.scaled_conv", scaled)])(before)
    assert transform.FoldScaleAxis()(before) is not before
    assert transform.FoldScaleAxis()(merged).same_as(merged)
