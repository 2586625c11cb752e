"""Relax's operators written as Relay's text and read again compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.errors import RelayError

R = relax.op
CASES: dict[str, tuple[list[tuple[int, ...]], Callable[..., Any]]] = {
    "convolution": (
        [(1, 4, 8, 8), (6, 2, 3, 3)],
        lambda x, w: R.nn.conv2d(x, w, strides=2, padding=(1, 0, 1, 2), groups=2),
    ),
    "transposed convolution": (
        [(1, 4, 5, 5), (4, 3, 3, 3)],
        lambda x, w: R.nn.conv2d_transpose(x, w, strides=2, padding=1, output_padding=1),
    ),
    "batch norm": (
        [(2, 3, 4, 4), (3,), (3,), (3,), (3,)],
        lambda x, g, b, m, v: relax.TupleGetItem(
            R.nn.batch_norm(x, g, b, m, R.abs(v), axis=1, training=False), 0
        ),
    ),
    "layer norm": (
        [(2, 3, 4), (4,), (4,)],
        lambda x, g, b: R.nn.layer_norm(x, g, b, axes=[-1], epsilon=1e-3),
    ),
    "pooling": (
        [(1, 2, 7, 7)],
        lambda x: R.add(
            R.nn.max_pool2d(x, (3, 3), 2, 1, ceil_mode=True),
            R.nn.avg_pool2d(x, (3, 3), 2, 1, count_include_pad=False),
        ),
    ),
    "adaptive pooling": ([(1, 2, 7, 7)], lambda x: R.nn.adaptive_avg_pool2d(x, (2, 3))),
    "matrix product": ([(3, 4), (4, 5)], R.matmul),
    "product of a batch and a matrix": ([(2, 3, 4), (4, 5)], R.matmul),
    "product of batches": ([(6, 3, 4), (6, 4, 5)], R.matmul),
    "product of batches that are broadcast": ([(2, 3, 3, 4), (3, 4, 5)], R.matmul),
    "matrix and vector": ([(3, 4), (4,)], R.matmul),
    "vector and matrices": ([(4,), (2, 4, 5)], R.matmul),
    "activations": (
        [(2, 5)],
        lambda x: R.add(
            R.add(R.nn.gelu(x), R.nn.gelu_tanh(x)), R.add(R.nn.silu(x), R.nn.leakyrelu(x, 0.2))
        ),
    ),
    "softmaxes": ([(2, 5)], lambda x: R.add(R.nn.softmax(x, 0), R.nn.log_softmax(x, 1))),
    "shapes": (
        [(2, 3, 4)],
        lambda x: R.squeeze(
            R.expand_dims(R.permute_dims(R.reshape(x, (6, 4)), [1, 0]), [0, 2]), [2]
        ),
    ),
    "broadcast": ([(1, 4)], lambda x: R.broadcast_to(x, (3, 4))),
    "concatenation and split": (
        [(2, 6), (2, 2)],
        lambda x, y: R.concat([relax.TupleGetItem(R.split(x, [2, 5], 1), 1), y], axis=1),
    ),
    "slices": (
        [(4, 6)],
        lambda x: R.strided_slice(x, axes=[1, 0], begin=[1, 0], end=[6, 3], strides=[2, 1]),
    ),
    "reductions": (
        [(2, 3, 4)],
        lambda x: R.add(R.mean(x, [1, 2], True), R.add(R.sum(x, 1, True), R.max(x, 1, True))),
    ),
    "clip and where": (
        [(3, 4), (3, 4)],
        lambda x, y: R.where(R.less(x, y), R.clip(x, -0.5, 0.5), R.astype(y, "float32")),
    ),
    "argmax": ([(3, 4)], lambda x: R.argmax(x, axis=1)),
    "indices": (
        [(5, 4)],
        lambda x: R.add(
            R.take(x, relax.const([0, 4, 2], "int64"), axis=0),
            R.gather_nd(x, relax.const([[1], [2], [3]], "int64")),
        ),
    ),
}


def module(shapes: list[tuple[int, ...]], make: Callable[..., Any]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    parameters = [
        relax.Var(f"p.{index}", relax.TensorType(shape, "float32"))
        for index, shape in enumerate(shapes)
    ]
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(make(*parameters)))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("name", CASES)
def test_what_an_importer_made_is_written_and_read_again(name: str) -> None:
    mod = module(*CASES[name])
    text = relay.astext(mod)
    assert "relax." not in text
    again = relay.fromtext(text)
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape).astype("float32") for shape in CASES[name][0]]
    expected, actual = (
        relay.create_executor("graph", each).evaluate()(*values).numpy() for each in (mod, again)
    )
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_an_operator_without_a_form_is_named() -> None:
    mod = module([(3, 4)], lambda x: R.round(x))
    with pytest.raises(RelayError, match=r"relax\.round has no form"):
        relay.astext(mod)
