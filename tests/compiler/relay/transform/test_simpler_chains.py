"""Chains that SimplifyExpr, DynamicToStatic and EliminateCommonSubexpr shorten, same values."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.relay import dialect
from compiler.relay.analysis import list_op_freqs
from compiler.relay.nested_expressions import nested
from compiler.relay.transform import (
    CombineParallelDense,
    DynamicToStatic,
    EliminateCommonSubexpr,
    SimplifyExpr,
)


def after(run, *functions):
    """Operators and their attributes after a pass, and that the values are those of before."""
    (function,) = functions
    mod = tvm.IRModule({"main": function})
    new = run()(mod)
    random = np.random.default_rng(0)
    values = [
        random.uniform(-9, 9, [int(n) for n in var.ty.shape]).astype(str(var.ty.dtype))
        for var in function.params
    ]
    results = [relay.create_executor("graph", each).evaluate()(*values) for each in (mod, new)]
    for old, made in zip(*[r if isinstance(r, list) else [r] for r in results]):
        np.testing.assert_allclose(made.numpy(), old.numpy(), rtol=1e-6)
    return new


def operators(mod):
    return dict(list_op_freqs(mod))


def image(*shape, dtype="float32"):
    return relay.var("x", shape=shape, dtype=dtype)


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ([("NCHW", "NHWC"), ("NHWC", "NCHW")], {}),
        ([("NCHW", "NCHW")], {}),
        ([("NCHW", "NHWC"), ("NHWC", "CHWN")], {"transpose": 1}),
        ([("NCHW", "NCHW4c"), ("NCHW4c", "NCHW8c")], {"layout_transform": 1}),
        ([("NCHW", "NCHW4c"), ("NCHW4c", "NCHW")], {}),
        ([[0, 2, 3, 1], ("NHWC", "HWCN"), [3, 0, 1, 2]], {"transpose": 1}),
        ([[0, 2, 3, 1], ("NHWC", "NCHW4c")], {"layout_transform": 1}),
        ([("NCHW", "NCHW4c"), ("NCHW4c", "NCHW"), [0, 2, 3, 1]], {"transpose": 1}),
        ([[3, 2, 1, 0], [3, 2, 1, 0]], {}),
    ],
)
def test_rearrangements_become_one_or_none(steps, left):
    x = y = image(2, 8, 3, 5)
    for step in steps:
        if isinstance(step, tuple):
            y = relay.layout_transform(y, *step)
        else:
            y = relay.transpose(y, axes=step)
    assert operators(after(SimplifyExpr, relay.Function([x], y))) == left


def test_reshapes_either_way_become_one():
    x = image(2, 3, 4)
    y = relay.reverse_reshape(relay.reshape(x, (6, -1)), (4, -1))
    new = after(SimplifyExpr, relay.Function([x], y))
    assert operators(new) == {"reshape": 1}


def test_a_cast_on_the_way_to_another_is_left_out_only_if_it_loses_nothing():
    x = image(4, dtype="int8")
    wide = relay.cast(relay.cast(relay.cast(x, "int16"), "int64"), "float32")
    assert operators(after(SimplifyExpr, relay.Function([x], wide))) == {"cast": 1}
    z = image(4)
    cut = relay.cast(relay.cast(z, "int32"), "float32")
    assert operators(after(SimplifyExpr, relay.Function([z], cut))) == {"cast": 2}


def test_a_tensor_full_of_a_number_becomes_the_number():
    x = image(2, 3)
    y = relay.subtract(relay.full(relay.const(7.0), (2, 3)), relay.multiply(relay.ones_like(x), x))
    assert operators(after(SimplifyExpr, relay.Function([x], y))) == {"subtract": 1}
    broadcast = relay.add(x, relay.full(relay.const(7.0), (5, 2, 3)))
    assert operators(after(SimplifyExpr, relay.Function([x], broadcast)))["full"] == 1


def test_collapse_sum_like_gets_its_shape():
    x, small = image(4, 3), relay.var("small", shape=(3,))
    new = after(SimplifyExpr, relay.Function([x, small], relay.collapse_sum_like(x, small)))
    assert set(operators(new)) == {"collapse_sum_to"}


def test_a_shape_that_a_type_tells_makes_an_operator_static():
    x, like = image(2, 6), relay.var("like", shape=(3, 4))
    new = after(DynamicToStatic, relay.Function([x, like], relay.reshape(x, relay.shape_of(like))))
    call = nested(new["main"])
    assert call.op.name == "reshape" and dialect.attributes(call)["newshape"] == [3, 4]


def test_equal_scalars_make_equal_calls_equal():
    x = image(3)
    y = relay.multiply(relay.add(x, relay.const(2.0)), relay.add(x, relay.const(2.0)))
    assert operators(after(EliminateCommonSubexpr, relay.Function([x], y)))["add"] == 1
    z = relay.multiply(relay.add(x, relay.const(2.0)), relay.add(x, relay.const(3.0)))
    assert operators(after(EliminateCommonSubexpr, relay.Function([x], z)))["add"] == 2


@pytest.mark.parametrize("batched", [True, False])
def test_dense_layers_of_one_input_are_joined_and_split_again(batched):
    x = image(3, 4)
    weights = [relay.var(f"w{i}", shape=(5, 4)) for i in range(3)]
    y = relay.Tuple([relay.nn.dense(x, w) for w in weights])
    new = after(lambda: CombineParallelDense(3, batched), relay.Function([x, *weights], y))
    found = operators(new)
    joined = {"nn.batch_matmul": 1, "split": 1} if batched else {"nn.dense": 1, "strided_slice": 3}
    assert joined.items() <= found.items()
