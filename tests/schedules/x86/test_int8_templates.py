"""Products of uint8 by int8 are exact, with vpdpbusd and without it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from compiler.autotvm import decode
from compiler.autotvm.single_op_program import build_alone, program_of
from compiler.target import parse
from schedules.x86.machine.dot_product import vnni_lanes
from tests.compiler.autotvm.replay import relative_error

DENSE = ("dense_int8.x86", [["TENSOR", [20, 24], "uint8"], ["TENSOR", [3, 6, 16, 4], "int8"],
                            None, "int32"])  # fmt: skip
STACK = ("batch_matmul_int8.x86", [["TENSOR", [2, 10, 24], "uint8"],
                                   ["TENSOR", [2, 32, 24], "int8"], [2, 10, 32], "int32",
                                   False, True])  # fmt: skip
CONV = ("conv2d_NCHWc_int8.x86", [["TENSOR", [1, 16, 8, 8], "uint8"],
                                  ["TENSOR", [32, 16, 3, 3], "int8"], [1, 1], [1, 1, 1, 1],
                                  [1, 1], "NCHW", "NCHW", "int32"])  # fmt: skip
CONV_KNOBS = [["tile_ic", "sp", [-1, 8]], ["tile_oc", "sp", [-1, 32]],
              ["tile_ow", "sp", [-1, 4]], ["unroll_kw", "ot", True]]  # fmt: skip


def record(task, args, entity):
    row = {
        "input": ["llvm", task, args, {}],
        "config": {"index": 0, "code_hash": None, "entity": entity},
        "result": [[1e-6], 0, 1.0, 1.0],
        "version": 0.2,
        "tvm_version": "0.18.0",
    }
    return decode(json.dumps(row))[0]


@pytest.mark.parametrize("rows", [1, 8, 20])
@pytest.mark.parametrize("packed_ahead", [0, 1])
@pytest.mark.parametrize("case", [DENSE, STACK], ids=["dense", "stack"])
def test_products_are_exact_for_rows_that_divide_and_that_do_not(case, rows, packed_ahead):
    knobs = [["tile_y", "sp", [-1, rows]], ["layout_trans_compute_root", "ot", packed_ahead]]
    assert relative_error(record(*case, knobs), parse("llvm")) == 0


@pytest.mark.parametrize("mcpu", ["x86-64", "haswell"])
def test_cpus_without_the_instruction_compute_exactly(mcpu):
    target = parse(f"llvm -mcpu={mcpu}")
    assert vnni_lanes(target) == 0
    assert relative_error(record(*CONV, CONV_KNOBS), target) == 0


@pytest.mark.parametrize(("mcpu", "lanes"), [("znver4", 16), ("cascadelake", 16), ("alderlake", 8)])
def test_cpus_with_the_instruction_use_it(mcpu, lanes):
    target = parse(f"llvm -mcpu={mcpu}")
    assert vnni_lanes(target) == lanes
    inp = record(*CONV, CONV_KNOBS)
    _, used = build_alone(inp, program_of(inp.task, np.random.default_rng(0)), target)
    assert used
