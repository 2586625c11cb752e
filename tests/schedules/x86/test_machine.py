"""What is derived from a CPU target."""

from __future__ import annotations

import pytest
from tvm.target import Target, codegen

from schedules.x86.machine import DEFAULT_L2_BYTES, Machine


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


def test_another_cpu_gets_documented_sizes():
    assert machine(mcpu="x86-64-v3").l2_bytes == DEFAULT_L2_BYTES


def test_this_cpu_has_caches_that_grow():
    found = machine(mcpu=str(codegen.llvm_get_system_cpu()))
    assert 0 < found.l1_bytes < found.l2_bytes


def test_the_number_of_cores_can_be_given():
    assert machine(mcpu="x86-64-v3", **{"num-cores": 18}).num_cores == 18


def test_a_gpu_is_no_machine_of_this_kind():
    with pytest.raises(ValueError, match="llvm target"):
        Machine.from_target(Target({"kind": "cuda", "arch": "sm_90"}))
