"""`relay.expr.CallWithFields` and its kin."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi

from compiler import relay
from compiler.relay import expr as _expr

SPAN = relay.Span(relay.SourceName("here"), 1, 1, 2, 9)


@pytest.fixture
def x():
    return relay.var("x", shape=(2, 3))


def nodes(x):
    call = relay.add(x, x)
    whole = relay.Tuple([x, call])
    return {
        "Call": call,
        "Tuple": whole,
        "TupleGetItem": relay.TupleGetItem(relay.split(x, 3, axis=1).astuple(), 1),
        "Constant": relay.const(np.ones(2, "float32")),
        "Var": x,
        "Let": relay.Let(relay.var("v", shape=(2, 3)), call, x),
        "If": relay.If(relay.const(True), x, call),
    }


@pytest.mark.parametrize("kind", _expr._FIELDS)
def test_a_node_gets_another_span_and_is_the_same_otherwise(x, kind):
    node = nodes(x)[kind]
    replace = getattr(_expr, f"{kind}WithFields")
    assert replace(node).same_as(node)
    spanned = replace(node, span=SPAN)
    assert not spanned.same_as(node) and node.span is None
    assert str(spanned.span.source_name.name) == "here"
    assert tvm_ffi.structural_equal(spanned, node, map_free_vars=True)
    assert tvm_ffi.structural_equal(spanned.ty, node.ty)


def test_parts_are_replaced(x):
    y = relay.var("y", shape=(2, 1))
    call = relay.Call(relay.add(x, x).op, [x, x], span=None)
    made = _expr.CallWithFields(call, args=[y, y])
    assert [int(extent) for extent in made.ty.shape.values] == [2, 1]
    assert _expr.VarWithFields(x, "z", relay.TensorType((5,))).ty.shape.values[0] == 5
    assert _expr.TupleWithFields(relay.Tuple([x, x]), [y]).fields[0].same_as(y)
    other = _expr.ConstantWithFields(relay.const(1.0), tvm.runtime.tensor(np.zeros(3, "int32")))
    assert other.ty.dtype == "int32"
