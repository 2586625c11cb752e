"""Padding folded and atrous convolutions flattened; batch sizes, arguments, derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.errors import RelayError, UnsupportedRelayOperatorError
from compiler.relay import transform


def module(body: Any) -> tvm.IRModule:
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))


def operators(mod: tvm.IRModule) -> dict[str, int]:
    return {str(name): int(count) for name, count in relay.analysis.list_op_freqs(mod).items()}


def assert_same_values(before: tvm.IRModule, after: tvm.IRModule) -> None:
    rng = np.random.default_rng(0)
    values = [
        rng.standard_normal([int(each) for each in parameter.ty.shape.values]).astype("float32")
        for parameter in before["main"].params
    ]
    expected, actual = (
        relay.create_executor("graph", mod).evaluate()(*values).numpy() for mod in (before, after)
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def padded(value: float = 0.0, mode: str = "constant") -> Any:
    data = relay.var("data", shape=(1, 3, 8, 8))
    return relay.nn.pad(data, [[0, 0], [0, 0], [1, 2], [0, 1]], value, mode)


def test_padding_with_zeros_goes_into_the_convolution() -> None:
    weight = relay.var("weight", shape=(4, 3, 3, 3))
    before = module(relay.nn.conv2d(padded(), weight, padding=(1, 0)))
    after = transform.FoldExplicitPadding()(before)
    assert operators(after) == {"nn.conv2d": 1}
    assert list(after["main"].body.blocks[0].bindings[0].value.attrs["padding"]) == [2, 0, 3, 1]
    assert_same_values(before, after)


@pytest.mark.parametrize("pad", [padded(1.0), padded(mode="edge")])
def test_other_padding_stays(pad: Any) -> None:
    weight = relay.var("weight", shape=(4, 3, 3, 3))
    before = module(relay.nn.conv2d(pad, weight))
    assert operators(transform.FoldExplicitPadding()(before)) == {"nn.pad": 1, "nn.conv2d": 1}


def test_padding_goes_into_pooling_where_it_means_the_same() -> None:
    smallest = float(np.finfo("float32").min)
    for before, folds in (
        (module(relay.nn.avg_pool2d(padded(), (2, 2))), True),
        (module(relay.nn.avg_pool2d(padded(), (2, 2), padding=(1, 1))), False),
        (module(relay.nn.max_pool2d(padded(smallest), (3, 3))), True),
        (module(relay.nn.max_pool2d(padded(), (2, 2))), False),
    ):
        after = transform.FoldExplicitPadding()(before)
        assert ("nn.pad" not in operators(after)) == folds
        assert_same_values(before, after)


def test_phases_around_a_convolution_are_its_dilation() -> None:
    data = relay.var("data", shape=(1, 5, 5, 4))
    weight = relay.var("weight", shape=(3, 3, 4, 1))
    spread = relay.nn.space_to_batch_nd(data, block_shape=[2, 2], paddings=[[2, 3], [2, 3]])
    convolved = relay.nn.conv2d(
        spread,
        weight,
        groups=4,
        channels=4,
        kernel_size=(3, 3),
        data_layout="NHWC",
        kernel_layout="HWOI",
    )
    before = module(relay.nn.batch_to_space_nd(convolved, [2, 2], [[0, 1], [0, 1]]))
    after = transform.FlattenAtrousConv()(before)
    assert operators(after) == {"nn.conv2d": 1}
    assert_same_values(before, after)


def test_another_batch_size_changes_all_types() -> None:
    data, weight = relay.var("data", shape=(1, 3, 8, 8)), relay.var("weight", shape=(4, 3, 3, 3))
    body = relay.nn.global_avg_pool2d(relay.nn.conv2d(data, weight))
    mod = tvm.IRModule.from_expr(relay.Function([data, weight], body))
    changed = transform.ChangeBatch({mod["main"].params[0]: 0}, batch_size=5)(mod)
    assert [int(each) for each in changed["main"].ret_ty.shape.values] == [5, 4, 1, 1]
    assert [int(each) for each in changed["main"].params[1].ty.shape.values] == [4, 3, 3, 3]


def test_a_concatenation_is_split_into_those_that_a_kernel_may_take() -> None:
    parts = [relay.var(f"part{index}", shape=(1, 2)) for index in range(9)]
    before = module(relay.concatenate(parts, axis=1))
    after = transform.SplitArgs(5)(before)
    assert operators(after)["concatenate"] == 3
    assert_same_values(before, after)
    assert operators(transform.SplitArgs(0)(before)) == {"concatenate": 1}


def test_derivatives_are_those_of_the_sum_of_the_result() -> None:
    data, weight = relay.var("data", shape=(4, 5)), relay.var("weight", shape=(3, 5))
    function = relay.Function([data, weight], relay.nn.relu(relay.nn.dense(data, weight)))
    made = transform.gradient(function, mode="first_order")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype("float32") for shape in ((4, 5), (3, 5)))
    result, (by_data, by_weight) = relay.create_executor("graph").evaluate(made)(x, w)
    inside = (x @ w.T > 0).astype("float32")
    np.testing.assert_allclose(result.numpy(), np.maximum(x @ w.T, 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(by_data.numpy(), inside @ w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(by_weight.numpy(), inside.T @ x, rtol=1e-5, atol=1e-6)


def test_what_has_no_derivative_is_named() -> None:
    data = relay.var("data", shape=(4,))
    with pytest.raises(UnsupportedRelayOperatorError, match="clip"):
        transform.gradient(relay.Function([data], relay.clip(data, -1.0, 1.0)))
    with pytest.raises(RelayError, match="second_order"):
        transform.gradient(relay.Function([data], data), mode="second_order")


@pytest.mark.parametrize(
    "name", ["ToCPS", "Defunctionalization", "ManifestLifetimes", "DenseToSparse"]
)
def test_passes_without_a_place_say_what_to_use(name: str) -> None:
    with pytest.raises(
        UnsupportedRelayOperatorError, match=rf"transform\.{name} is not supported: "
    ):
        getattr(transform, name)


def test_an_old_build_config_is_a_pass_context() -> None:
    with transform.build_config(opt_level=1, disabled_pass=["FastMath"]):
        assert tvm.transform.PassContext.current().opt_level == 1


def test_dead_code_elimination_keeps_functions_that_have_no_symbol() -> None:
    x = relay.var("x", shape=(2,))
    function = relay.Function([x], relay.exp(x)).without_attr("global_symbol")
    mod = transform.DeadCodeElimination()(tvm.IRModule({"main": function}))
    assert operators(mod) == {"exp": 1}
