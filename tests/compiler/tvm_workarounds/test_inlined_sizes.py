"""Sizes of functions that are inlined."""

from __future__ import annotations

import tvm
from tvm import relax

from compiler.tvm_workarounds.inlined_sizes import with_own_sizes


def module():
    """main(x: (n,)) = next(exp(x)), where next(y: (m,)) = y + ones((m,))."""
    n, m = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("m", "int64")
    x, y = (
        relax.Var("x", relax.TensorType((n,), "float32")),
        relax.Var("y", relax.TensorType((m,), "float32")),
    )
    builder = relax.BlockBuilder()
    with builder.function("next", [y], private=True):
        with builder.dataflow():
            ones = builder.emit(relax.op.ones((m,), "float32"))
            more = builder.emit_output(relax.op.add(y, ones))
        following = builder.emit_func_output(more)
    with builder.function("main", [x]):
        with builder.dataflow():
            called = builder.emit_output(relax.Call(following, [builder.emit(relax.op.exp(x))]))
        builder.emit_func_output(called)
    return builder.get()


def unknown_sizes(mod):
    inlined = relax.transform.InlinePrivateFunctions()(mod)
    return relax.analysis.free_symbolic_vars(inlined["main"])


def test_what_tvm_inlines_has_sizes_that_nothing_defines():
    assert unknown_sizes(module())


def test_sizes_that_the_body_matches_are_defined():
    mod = module()
    name = mod.get_global_var("next")
    mod.update_func(name, with_own_sizes(mod[name]))
    assert not unknown_sizes(mod)


def test_a_function_of_known_sizes_stays_as_it_is():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    function = builder.get()["main"]
    assert with_own_sizes(function).same_as(function)
