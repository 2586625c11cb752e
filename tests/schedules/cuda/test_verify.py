"""What is checked of a scheduled function before a rule's result is used."""

import pytest
from tvm import s_tir, te, topi
from tvm.s_tir.dlight import ScheduleRule
from tvm.target import Target

from schedules.cuda import TVM_REFUSALS, Checked, has_thread_bindings, violation
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


class _Fails(ScheduleRule):
    def apply(self, func, target, _):
        raise KeyError("a defect")


class _Refuses(ScheduleRule):
    def apply(self, func, target, _):
        raise s_tir.ScheduleError("a primitive does not apply")


class _TooMany(ScheduleRule):
    def apply(self, func, target, _):
        return s_tir.Schedule(bound(2048))


@pytest.mark.parametrize("rule", [_Raises(), _TooMany(), _Refuses(), _Fails()])
def test_a_checked_rule_that_fails_leaves_the_function_to_the_next(rule):
    x = tensor(4)
    func = te.create_prim_func([x, topi.exp(x)])
    assert Checked("failing", rule).apply(func, TARGET, False) is None


@pytest.mark.parametrize(
    ("rule", "refusals", "warns"),
    [
        (_Fails(), TVM_REFUSALS, True),
        (_Raises(), (), True),
        (_Raises(), TVM_REFUSALS, False),
        (_Refuses(), (), False),
        (_TooMany(), (), False),
    ],
)
def test_only_an_error_that_is_not_a_refusal_is_warned_of_with_the_kernels_name(
    rule, refusals, warns, caplog
):
    x = tensor(4)
    func = te.create_prim_func([x, topi.exp(x)])
    with caplog.at_level("WARNING", logger="baton.schedules"):
        Checked("some.rule", rule, refusals).apply(func, TARGET, False)
    assert ("some.rule fails on the function with blocks ['compute']" in caplog.text) is warns


def _dynamic(width):
    """A block that copies its row through dynamic shared memory."""
    x = tensor(64, width)
    schedule = s_tir.Schedule(te.create_prim_func([x, topi.exp(x)]))
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    rows, columns = schedule.get_loops(block)
    fetch = schedule.cache_read(block, 0, "shared.dyn")
    schedule.compute_at(fetch, rows)
    schedule.bind(rows, "blockIdx.x")
    for loop in (columns, schedule.get_loops(fetch)[-1]):
        schedule.bind(schedule.split(loop, [None, 256])[1], "threadIdx.x")
    return schedule.mod["main"]


@pytest.mark.parametrize(
    ("arch", "kib", "fits"),
    [
        ("sm_90", 226, True),
        ("sm_90", 228, False),
        ("sm_86", 98, True),
        ("sm_86", 100, False),
        ("sm_75", 64, True),
        ("sm_61", 64, False),
    ],
)
def test_dynamic_shared_memory_is_held_against_what_a_block_can_ask_for(arch, kib, fits):
    target = Target({"kind": "cuda", "arch": arch}, host="llvm")
    reason = violation(_dynamic(kib * 256), target)
    assert reason is None if fits else f"its {kib * 1024} bytes of shared memory" in reason


def test_cuda_rules_take_nothing_for_another_target():
    x = tensor(4)
    func = te.create_prim_func([x, topi.exp(x)])
    assert Checked("too many", _TooMany()).apply(func, Target({"kind": "llvm"}), False) is None
