"""What is derived from a CPU target."""

from __future__ import annotations

import pytest
from tvm.target import Target, codegen

from schedules.x86.machine.cpu import Machine
from schedules.x86.machine.cpu_models import CORES, GENERIC
from schedules.x86.machine.host import host_name


def machine(**attrs) -> Machine:
    return Machine.from_target(Target({"kind": "llvm", **attrs}))


@pytest.mark.parametrize(
    ("mcpu", "bits", "registers", "fma"),
    [
        ("x86-64", 128, 16, False),
        ("ivybridge", 128, 16, False),
        ("x86-64-v3", 256, 16, True),
        ("skylake-avx512", 512, 32, True),
        ("znver5", 512, 32, True),
    ],
)
def test_vectors_follow_the_cpu(mcpu, bits, registers, fma):
    found = machine(mcpu=mcpu)
    assert (found.vector_bits, found.vector_registers, found.has_fma) == (bits, registers, fma)


def test_features_count_like_a_cpu():
    assert machine(mcpu="x86-64", mattr=["+avx2", "+fma"]).vector_bits == 256


def test_lanes_divide_the_vector_by_the_element():
    found = machine(mcpu="x86-64-v3")
    lanes = {dtype: found.lanes(dtype) for dtype in ("float64", "float32", "float16", "int8")}
    assert lanes == {"float64": 4, "float32": 8, "float16": 16, "int8": 32}
    assert found.lanes("bool") == 32


def test_a_cpu_gets_the_sizes_and_rates_of_its_own_row():
    sizes = {name: machine(mcpu=name).core.l2_bytes >> 10 for name in ("znver3", "sapphirerapids")}
    assert sizes == {"znver3": 512, "sapphirerapids": 2048}
    assert machine(mcpu="x86-64-v3").core == GENERIC[256]


def test_a_narrow_datapath_takes_two_cycles_for_a_wide_vector():
    zen4, zen5 = machine(mcpu="znver4"), machine(mcpu="znver5")
    assert (zen4.fmas, zen5.fmas) == (1, 2)
    assert zen4.step_cycles(8, 3) == 24
    assert zen5.step_cycles(8, 3) == 12
    narrow = machine(mcpu="znver4", mattr=["-avx512f"])
    assert (narrow.vector_bits, narrow.fmas) == (256, 2)
    assert narrow.flops_per_cycle == zen4.flops_per_cycle


def test_a_step_waits_for_the_sum_of_the_step_before():
    assert machine(mcpu="haswell").step_cycles(1, 1) == 5
    assert machine(mcpu="znver3").step_cycles(1, 1) == 4


@pytest.mark.parametrize("name", sorted(CORES))
def test_llvm_knows_each_row_and_its_numbers_are_of_a_core(name):
    core = machine(mcpu=name).core
    assert name in {str(known) for known in codegen.llvm_get_cpu_archlist(Target("llvm"))}
    assert core.l1_bytes < core.l2_bytes < core.l3_bytes
    assert 1 <= core.loads <= 3 and 1 <= core.gigahertz <= 6


def test_this_cpu_has_caches_that_grow():
    found = machine(mcpu=host_name())
    assert 0 < found.l1_bytes < found.l2_bytes


def test_the_number_of_cores_can_be_given():
    assert machine(mcpu="x86-64-v3", **{"num-cores": 18}).num_cores == 18


def test_a_gpu_is_no_machine_of_this_kind():
    with pytest.raises(ValueError, match="llvm target"):
        Machine.from_target(Target({"kind": "cuda", "arch": "sm_90"}))


def test_cores_are_busy_where_tasks_are_a_multiple_of_them():
    machine = Machine.from_target(Target({"kind": "llvm", "mcpu": "znver3", "num-cores": 4}))
    assert [machine.busy(tasks) for tasks in (1, 5, 8)] == [1 / 4, 5 / 8, 1]
