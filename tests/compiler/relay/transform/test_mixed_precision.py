"""ToMixedPrecision: categories, casts, and the settings that decide about results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tvm
import tvm_ffi

from compiler import relay
from compiler.relay import pass_config, transform
from compiler.relay.testing.temp_op_attr import TempOpAttr
from tests.compiler.relay.transform.modules import module_of, operators_of

ATTRIBUTE = "FTVMMixedPrecisionConversionType"


def dense(data: Any = None) -> Any:
    data = relay.var("x", shape=(2, 3)) if data is None else data
    return relay.nn.dense(data, relay.var("w", shape=(3, 3)))


def result(mod: tvm.IRModule) -> str:
    return str(mod["main"].ret_ty.dtype)


@pytest.fixture
def kept_results() -> Iterator[None]:
    token = pass_config.enter({"relay.ToMixedPrecision.keep_orig_output_dtype": True})
    yield
    pass_config.leave(token)


def test_products_are_short_and_what_follows_them_too() -> None:
    after = transform.ToMixedPrecision()(module_of(relay.nn.relu(dense())))
    assert operators_of(after) == {"cast": 2, "nn.dense": 1, "nn.relu": 1}
    assert result(after) == "float16"


def test_what_needs_accuracy_is_computed_in_float32() -> None:
    after = transform.ToMixedPrecision("bfloat16")(module_of(relay.nn.softmax(dense())))
    assert operators_of(after) == {"cast": 3, "nn.dense": 1, "nn.softmax": 1}
    assert result(after) == "float32"


@pytest.mark.usefixtures("kept_results")
def test_a_setting_keeps_the_types_of_results() -> None:
    for body, casts in ((dense(), 3), (relay.Tuple([dense(), relay.var("y", shape=(2,))]), 3)):
        before = module_of(body)
        after = transform.ToMixedPrecision()(before)
        assert operators_of(after)["cast"] == casts
        assert tvm_ffi.structural_equal(after["main"].ret_ty, before["main"].ret_ty)


def test_numbers_that_the_short_type_does_not_hold_stay() -> None:
    clipped = relay.clip(dense(), 0.0, 1e6)
    assert result(transform.ToMixedPrecision("float16")(module_of(clipped))) == "float32"
    assert result(transform.ToMixedPrecision("bfloat16")(module_of(clipped))) == "bfloat16"


def test_scripts_say_how_an_operator_is_converted() -> None:
    def accumulating(call: Any, short: str) -> list[Any]:
        assert str(call.op.name) == "nn.dense"
        return [transform.mixed_precision.MIXED_PRECISION_ALWAYS, "float32", short]

    with TempOpAttr("nn.dense", ATTRIBUTE, accumulating):
        after = transform.ToMixedPrecision()(module_of(dense()))
    assert operators_of(after) == {"cast": 3, "nn.dense": 1}
    assert result(after) == "float16"


def test_operators_of_no_category_follow_and_are_named() -> None:
    before = module_of(relay.sin(dense()))
    with pytest.warns(UserWarning, match=r"sin \(1\)"):
        after = transform.ToMixedPrecision()(before)
    assert result(after) == "float16"
    with pytest.raises(RuntimeError, match="no category"):
        transform.ToMixedPrecision(missing_op_mode=0)(before)
