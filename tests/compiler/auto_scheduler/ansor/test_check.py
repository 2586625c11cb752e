"""Verdicts on scheduled kernels: right, wrong, crashing, hanging; kept on disk."""

from __future__ import annotations

import pytest
import tvm
from tvm import te

from compiler.auto_scheduler.ansor.check import Checker, Question
from compiler.auto_scheduler.ansor.packing import Packing
from compiler.lowering.kernel_cache import KernelCache


def scaled(factor):
    x = te.placeholder((8, 4), "float32", "x")
    return te.create_prim_func([x, te.compute((8, 4), lambda i, j: x[i, j] * factor)])


def transposed_and_scaled(factor):
    x = te.placeholder((4, 8), "float32", "x")
    return te.create_prim_func([x, te.compute((8, 4), lambda i, j: x[j, i] * factor)])


AS_IT_IS = Packing()


def question(scheduled, packing=AS_IT_IS, target=None):
    return Question(scaled(2.0), scheduled, ((0, packing),), 1, target or {"kind": "llvm"})


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
