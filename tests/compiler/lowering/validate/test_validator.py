"""Verdicts on scheduled kernels: right, wrong, crashing, hanging; kept on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm
import tvm_ffi
from tvm import te

from compiler.lowering.cache.kernel_cache import KernelCache
from compiler.lowering.codegen.compile_kernels import compile_cpu_kernels
from compiler.lowering.validate.validator import Checker, ValidationJob
from compiler.records.ansor.packing import Packing


def scaled(factor):
    x = te.placeholder((8, 4), "float32", "x")
    return te.create_prim_func([x, te.compute((8, 4), lambda i, j: x[i, j] * factor)])


def transposed_and_scaled(factor):
    x = te.placeholder((4, 8), "float32", "x")
    return te.create_prim_func([x, te.compute((8, 4), lambda i, j: x[j, i] * factor)])


AS_IT_IS = Packing()


def question(scheduled, packing=AS_IT_IS, target=None):
    return ValidationJob(scaled(2.0), scheduled, ((0, packing),), 1, target or {"kind": "llvm"})


@pytest.fixture
def cache(tmp_path):
    return KernelCache(tmp_path / "verdicts", 10**6)


def test_same_numbers_are_right(checker):
    assert checker.check(question(scaled(2.0))).right


def test_other_numbers_are_wrong(checker):
    verdict = checker.check(question(scaled(2.01)))
    assert not verdict.right
    assert "wrong numbers" in verdict.reason


def test_operands_are_packed_before_the_kernel_sees_them(checker):
    packing = Packing((("transpose", [1, 0]),))
    assert checker.check(question(transposed_and_scaled(2.0), packing)).right


def test_a_kernel_that_can_not_be_compiled_is_not_used(checker):
    verdict = checker.check(question(scaled(2.0), target={"kind": "no such kind"}))
    assert "can't be compiled or run" in verdict.reason


def test_a_verdict_is_kept_and_asked_for_once(cache):
    with Checker(cache) as first:
        assert first.check(question(scaled(2.0))).right
    with Checker(cache, seconds=0.0) as second:  # a worker would have no time to answer
        assert second.check(question(scaled(2.0))).right


def test_a_kernel_that_takes_too_long_is_not_used(cache):
    with Checker(cache, seconds=0.0) as checker:
        verdict = checker.check(question(scaled(3.0)))
    assert "longer than" in verdict.reason


def test_a_kernel_that_crashes_takes_only_the_worker_with_it(cache):
    buffer = scaled(2.0).params[1]
    far = tvm.tirx.const(2**40, "int64")
    body = tvm.tirx.BufferStore(buffer, tvm.tirx.const(1.0, "float32"), [far, far])
    crashing = scaled(2.0).with_body(body)
    with Checker(cache) as checker:
        assert not checker.check(question(crashing)).right
        assert checker.check(question(scaled(2.0))).right


def compiled(func, symbol):
    mod = tvm.IRModule({symbol: func.with_attr("global_symbol", symbol)})
    return compile_cpu_kernels(mod, tvm.target.Target({"kind": "llvm"}), KernelCache(Path(), 0))[
        1
    ].code


def test_object_code_is_checked_as_it_is(cache):
    code = compiled(scaled(2.0), "right") | compiled(scaled(3.0), "wrong")
    questions = {"right": question(scaled(2.0)), "wrong": question(scaled(3.0))}
    with Checker(cache) as checker:
        checker.begin(questions["right"])
        verdicts = checker.check_compiled(questions, code)
        assert verdicts["right"].right
        assert "wrong numbers" in verdicts["wrong"].reason
        assert checker.known(questions["wrong"]) == verdicts["wrong"]


def test_an_element_that_is_not_written_makes_a_kernel_wrong(checker):
    """The sample alone would hardly see one element of two millions."""
    x = te.placeholder((1000, 2000), "float32", "x")
    whole = te.create_prim_func([x, te.compute((1000, 2000), lambda i, j: x[i, j] * 2)])
    row, column = 500, 1000

    def all_but_one(realize):
        i, j = realize.iter_values
        there = tvm.tirx.Or(i != row, j != column)
        return tvm.s_tir.SBlockRealize(realize.iter_values, there, realize.block)

    body = whole.body.block.body
    hole = tvm_ffi.structural_map(body, (tvm.s_tir.SBlockRealize, all_but_one))
    root = whole.body
    block = tvm.s_tir.SBlock(
        [], [], [], root.block.name_hint, hole, alloc_buffers=root.block.alloc_buffers
    )
    partial = whole.with_body(tvm.s_tir.SBlockRealize([], True, block))
    verdict = checker.check(ValidationJob(whole, partial, ((0, AS_IT_IS),), 1, {"kind": "llvm"}))
    assert "wrong numbers" in verdict.reason
