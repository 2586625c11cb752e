"""Loops that LLVM 22.1 vectorizes wrongly are kept from its vectorizer, and no others."""

from __future__ import annotations

import re

import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T
from tvm.target import Target

from compiler.lowering.kernel_passes import pipeline as tir_pipeline

TARGET = Target({"kind": "llvm", "mcpu": "znver5"})


@T.prim_func(s_tir=True)
def half_from_each(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 64), "float32")):
    for i, j in T.grid(4, 64):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, vj] = T.if_then_else(vj % 8 < 4, a[vi, vj % 8 + 4], T.float32(0))


@T.prim_func(s_tir=True)
def no_condition(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 64), "float32")):
    for i, j in T.grid(4, 64):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, vj] = a[vi, vj % 8]


@T.prim_func(s_tir=True)
def no_power_of_two(a: T.Buffer((4, 12), "float32"), b: T.Buffer((4, 60), "float32")):
    for i, j in T.grid(4, 60):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, vj] = T.if_then_else(vj % 12 < 6, a[vi, vj % 12 + 6], T.float32(0))


@T.prim_func(s_tir=True)
def vectors(a: T.Buffer((4, 64), "float32"), b: T.Buffer((64, 16), "float32")):
    for i in range(64):
        for j in T.vectorized(16):
            with T.sblock("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = T.if_then_else(vi < 40, a[vi % 4, vj], T.float32(0))


@T.prim_func(s_tir=True)
def remainder_of_the_outer_loop(a: T.Buffer((8, 64), "float32"), b: T.Buffer((64, 64), "float32")):
    for i, j in T.grid(64, 64):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, vj] = T.if_then_else(vj < 60, a[vi % 8, vj + 4], T.float32(0))


@T.prim_func(s_tir=True)
def every_other_half(a: T.Buffer((4, 64), "float32"), b: T.Buffer((4, 64), "float32")):
    for i, j in T.grid(4, 64):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, vj] = T.if_then_else(vj % 8 < 4, a[vi, vj] * T.float32(3), T.float32(0))


def guarded_loops(func):
    """Names of the guarded loops' variables."""
    lower, finalize_host, _ = tvm.tirx.get_tir_pipeline(tir_pipeline.PIPELINE)
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    mod = tvm.tirx.transform.BindTarget(TARGET.with_host(TARGET))(mod)
    found = []

    def loop(node):
        first = tirx.stmt_list(node.body)[0]
        if isinstance(first, tirx.Evaluate) and "call_llvm_intrin" in str(first):
            found.append(node.loop_var.name)

    for lowered in finalize_host()(lower(mod)).functions.values():
        tvm_ffi.structural_walk(lowered.body, (tirx.For, loop))
    return found


@pytest.mark.parametrize(
    ("func", "guarded"),
    [
        (half_from_each, ["j"]),
        (no_condition, []),
        (no_power_of_two, []),
        (vectors, []),
        (remainder_of_the_outer_loop, ["i"]),
    ],
)
def test_loops_with_conditions_and_a_remainder_of_their_variable_are_guarded(func, guarded):
    assert guarded_loops(func) == guarded


def test_llvm_does_not_vectorize_a_guarded_loop():
    func = every_other_half.with_attr("global_symbol", "main")

    def has_vectors(**pipeline):
        code = tvm.tirx.build(func, target=TARGET, **pipeline).inspect_source("ll")
        return re.search(r"<\d+ x float>", code) is not None

    assert has_vectors()
    assert not has_vectors(pipeline=tir_pipeline.PIPELINE)
