"""Attentions over extents that are computed from symbols."""

from __future__ import annotations

import pytest
import tvm_ffi
from tvm import relax, tirx

from compiler.lowering.selection.ops.attention import find_attention


def attention(rows):
    """softmax(q @ k) @ v; `rows` computes the number of rows from a symbol."""
    builder, batch, n = relax.BlockBuilder(), tirx.Var("batch", "int64"), tirx.Var("n", "int64")
    shapes = {"q": (batch, 2, rows(n), 8), "k": (batch, 2, 8, rows(n)), "v": (batch, 2, rows(n), 8)}
    operands = [
        relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()
    ]
    length = relax.Var("length", relax.TensorType((n,), "float32"))
    with builder.function("main", [length, *operands]):
        q, k, v = operands
        scores = builder.emit(relax.op.matmul(q, k))
        weights = builder.emit(relax.op.nn.softmax(scores))
        builder.emit_func_output(builder.emit(relax.op.matmul(weights, v)))
    return builder.get()["main"], n


@pytest.mark.parametrize("divisor", [1, 64, 320, 5000])
def test_rows_of_an_attention_over_quotients_stay_symbolic(divisor):
    function, n = attention(lambda n: tirx.floordiv(n, divisor))
    (found,) = find_attention(function).values()
    wanted = n if divisor == 1 else tirx.floordiv(n, divisor)
    assert tvm_ffi.structural_equal(found.workload.s, wanted)
    assert tvm_ffi.structural_equal(found.workload.t, wanted)


@pytest.mark.parametrize("clipped", [tirx.min, lambda n, end: tirx.max(end - n, 0)])
def test_no_attention_is_found_over_a_clipped_extent(clipped):
    function, _ = attention(lambda n: clipped(n, 512))
    assert not find_attention(function)
