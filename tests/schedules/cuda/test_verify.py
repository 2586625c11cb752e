"""What is checked of a scheduled function before a rule's result is used."""

import pytest
from tvm import s_tir, te, topi
from tvm.s_tir.dlight import ScheduleRule
from tvm.target import Target

from schedules.cuda import Checked, has_thread_bindings, violation
from tests.schedules.cuda.checking import TARGET, tensor


def bound(threads, shared=False, width=2048):
    x = tensor(64, width)
    schedule = s_tir.Schedule(te.create_prim_func([x, topi.exp(x)]))
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    rows, columns = schedule.get_loops(block)
    schedule.bind(rows, "blockIdx.x")
    _, thread = schedule.split(columns, [None, threads])
    schedule.bind(thread, "threadIdx.x")
    if shared:
        schedule.compute_at(schedule.cache_read(block, 0, "shared"), rows)
        fetch = schedule.get_producers(block)[0]
        schedule.bind(
            schedule.split(schedule.get_loops(fetch)[-1], [None, threads])[1], "threadIdx.x"
        )
    return schedule.mod["main"]


def test_a_function_without_threads_has_none():
    x = tensor(4)
    func = te.create_prim_func([x, topi.exp(x)])
    assert not has_thread_bindings(func)
    assert "outside of any thread" in violation(func, TARGET)


def test_a_function_with_one_stage_outside_of_threads_is_found():
    x = tensor(64)
    schedule = s_tir.Schedule(te.create_prim_func([x, topi.exp(topi.cumsum(x, 0))]))
    *_, last = schedule.get_child_blocks(schedule.get_sblock("root"))
    schedule.bind(schedule.get_loops(last)[0], "threadIdx.x")
    assert not has_thread_bindings(schedule.mod["main"])


def test_virtual_threads_alone_are_no_threads():
    x = tensor(64)
    schedule = s_tir.Schedule(te.create_prim_func([x, topi.exp(x)]))
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    schedule.bind(schedule.get_loops(block)[0], "vthread.x")
    assert not has_thread_bindings(schedule.mod["main"])


def test_threads_and_shared_memory_within_the_limits_pass():
    assert violation(bound(256), TARGET) is None
    assert violation(bound(1024, shared=True), TARGET) is None


def test_too_many_threads_for_the_target_are_a_violation():
    small = Target({"kind": "cuda", "arch": "sm_90", "max_threads_per_block": 128})
    assert "its 2048 threads per block exceed 1024" in violation(bound(2048), TARGET)
    assert "its 256 threads per block exceed 128" in violation(bound(256), small.with_host("llvm"))


def test_too_much_shared_memory_for_the_target_is_a_violation():
    small = Target({"kind": "cuda", "arch": "sm_90", "max_shared_memory_per_block": 4096})
    reason = violation(bound(256, shared=True), small.with_host("llvm"))
    assert reason == "its 8192 bytes of static shared memory exceed 4096"


def test_static_shared_memory_has_a_limit_that_no_target_raises():
    large = Target({"kind": "cuda", "arch": "sm_90", "max_shared_memory_per_block": 166912})
    func = bound(256, shared=True, width=16384)
    reason = violation(func, large.with_host("llvm"))
    assert reason == "its 65536 bytes of static shared memory exceed 49152"


class _Raises(ScheduleRule):
    def apply(self, func, target, _):
        raise AssertionError("as some of TVM's rules do")


class _TooMany(ScheduleRule):
    def apply(self, func, target, _):
        return s_tir.Schedule(bound(2048))


@pytest.mark.parametrize("rule", [_Raises(), _TooMany()])
def test_a_checked_rule_that_fails_leaves_the_function_to_the_next(rule):
    x = tensor(4)
    func = te.create_prim_func([x, topi.exp(x)])
    assert Checked("failing", rule).apply(func, TARGET, False) is None


def test_cuda_rules_take_nothing_for_another_target():
    x = tensor(4)
    func = te.create_prim_func([x, topi.exp(x)])
    assert Checked("too many", _TooMany()).apply(func, Target({"kind": "llvm"}), False) is None
