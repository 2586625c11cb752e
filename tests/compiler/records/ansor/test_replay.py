"""Replay of genuine records: loop nests as TVM 0.18 had them, and right numbers."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.target import Target

from compiler.lowering.validate.validator import ValidationJob
from compiler.records.ansor.dag import read_dag
from compiler.records.ansor.packing import Packing
from compiler.records.ansor.replay import replay
from compiler.records.ansor.state import StepError, apply_steps
from compiler.records.ansor.steps import parse_steps
from compiler.tvm_workarounds.index_guard import guard_indices
from tests.compiler.records.ansor.conftest import dag_of, loop_nests
from tests.schedules.cuda.emulation import Emulated

NESTS = loop_nests()["nests"]
CPU = [n for n in NESTS if n["runs"] and n["record"]["i"][0][1].startswith("llvm")]
CUDA = [n for n in NESTS if n["record"]["i"][0][1].startswith("cuda")]
MATMUL = '["matmul_bias_relu", 117, 65, 300]'  # A, B, matmul(i, j, k), bias, bias_add, relu


def replayed(nest):
    record = nest["record"]
    return replay(dag_of(record["i"][0][0]), parse_steps(record["i"][1][1]))


def question(nest):
    dag = dag_of(nest["record"]["i"][0][0])
    count = len(dag.inputs)
    operands = tuple((i, Packing()) for i in range(count))
    scheduled = guard_indices(replayed(nest).func)
    return ValidationJob(dag.func, scheduled, operands, len(dag.outputs), {"kind": "llvm"})


@pytest.mark.parametrize("nest", NESTS, ids=lambda nest: nest["name"])
def test_loops_have_the_order_extents_and_annotations_of_tvm_0_18(nest):
    result = replayed(nest)
    stages = result.state.stages
    assert [s.name.split(".")[0].rstrip("_0123456789") for s in stages] == [
        name.split(".")[0].rstrip("_0123456789") for name, _, _ in nest["stages"]
    ]
    for stage, (_, place, loops) in zip(stages, nest["stages"], strict=True):
        assert place == ("inlined" if stage.inlined else "iter" if stage.attached else "root")
        if not stage.inlined and not stage.is_placeholder:
            assert [list(loop[1:]) for loop in result.loops[stage.name]] == loops


# Each op family once, and every hand-driven state, whose steps are the rare ones.
@pytest.mark.parametrize(
    "nest",
    [n for n in CPU if ":" not in n["name"]][::2] + [n for n in CPU if ":" in n["name"]][::3],
    ids=lambda nest: nest["name"],
)
def test_kernel_computes_the_right_numbers(nest, checker):
    verdict = checker.check(question(nest))
    assert verdict.right, verdict.reason


SMALL = ("square_norm", "transpose_add_relu")


@pytest.mark.parametrize(
    "nest", [n for n in CUDA if n["name"].startswith(SMALL)], ids=lambda nest: nest["name"]
)
def test_cuda_kernel_computes_the_right_numbers_when_emulated(nest, tmp_path):
    dag = dag_of(nest["record"]["i"][0][0])
    func = guard_indices(replayed(nest).func)
    target = Target({"kind": "cuda", "arch": "sm_80", "host": {"kind": "llvm"}})
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-1, 1, op.shape).astype("float32") for op in dag.inputs]
    (found,) = Emulated(func, target, tmp_path)(inputs)
    wide = [x.astype("float64") for x in inputs]
    if len(inputs) == 1:
        expected = np.sqrt((wide[0] ** 2).sum(1))
    else:
        expected = np.maximum(wide[0].T + wide[1], 0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([["SP", 9, 0, 117, [4], 1]], "step 0 (SP): there is no stage 9"),
        ([["SP", 0, 0, 117, [4], 1]], "is a placeholder"),
        ([["SP", 2, 7, 117, [4], 1]], "has 3 loops, none of number 7"),
        ([["SP", 2, 0, 100, [4], 1]], "has extent 117, not 100"),
        ([["RE", 2, [0, 1]]], "is not an order of 3 loops"),
        ([["FU", 2, [0, 2]]], "are not consecutive"),
        ([["FSP", 2, 0, 0, 1]], "step 0 is not a split before this one"),
        ([["CI", 2]], "is a reduction or a result"),
        ([["CI", 5]], "is a reduction or a result"),
        ([["RF", 2, 0, 0]], "is not a reduction"),
        ([["CHR", 0, "shared", [4]]], "does not read"),
        ([["AN", 2, 0, 11]], "tensorize"),
        ([["AN", 2, 0, 3], ["AN", 2, 0, 2]], "is parallel already"),
        ([["CA", 2, 4, 0], ["CA", 4, 2, 0]], "inside itself"),
        ([["CA", 4, 2, 0]], "can't read it"),
    ],
)
def test_steps_that_do_not_fit_the_compute_are_refused_with_a_reason(steps, reason):
    with pytest.raises(StepError) as caught:
        apply_steps(dag_of(MATMUL), parse_steps(steps))
    assert reason in str(caught.value)


def test_a_damaged_record_raises_nothing_but_step_errors():
    rng = random.Random(0)
    steps = next(n for n in CPU if len(n["record"]["i"][1][1]) > 15)["record"]["i"][1][1]
    for _ in range(60):
        damaged = [list(step) for step in steps]
        step = rng.choice(damaged)
        at = rng.randrange(1, len(step))
        if isinstance(step[at], int):
            step[at] = rng.randrange(8)
        elif rng.random() < 0.5:
            damaged.remove(step)
        try:
            replay(dag_of(MATMUL), parse_steps(damaged))
        except ValueError as error:
            assert str(error)


def test_replaying_leaves_the_compute_as_it_was():
    dag = dag_of(MATMUL)
    before = dag.func.script()
    replay(dag, parse_steps([["SP", 2, 2, 300, [10], 1], ["RF", 2, 3, 2]]))
    assert dag.func.script() == before


@pytest.mark.parametrize("iterator", [1, 2])
def test_rfactor_with_a_tail_computes_the_right_sums(iterator):
    """9 sums in parts of 4, with the partial results computed at their consumer."""
    x = te.placeholder((4, 9), "float32", "x")
    k = te.reduce_axis((0, 9), "k")
    total = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="total")
    half = te.compute((4,), lambda i: total[i] / 2.0, name="half")
    # x, total.rf, total, half
    order = [["RE", 1, [0, 2, 1]]] if iterator == 2 else []
    steps = [["SP", 1, 1, 9, [4], 1], ["RF", 1, iterator, 1], *order,
             ["CA", 2, 3, 0], ["CA", 1, 2, 0], ["AN", 3, 0, 3]]  # fmt: skip
    result = replay(read_dag(te.create_prim_func([x, half])), parse_steps(steps))
    assert "do not divide the reduction" in result.notes[0]
    kernel = tvm.compile(result.func, target={"kind": "llvm"})
    values = np.arange(36, dtype="float32").reshape(4, 9)
    out = tvm.runtime.tensor(np.full(4, np.nan, "float32"))
    kernel(tvm.runtime.tensor(values), out)
    np.testing.assert_allclose(out.numpy(), values.sum(1) / 2)


@pytest.mark.parametrize(("elements", "left_out"), [(4, 0), (18, 1)])
def test_vector_lengths_that_cuda_lacks_are_left_out_and_noted(elements, left_out):
    x = te.placeholder((16, 1152), "float32", "x")
    out = te.compute((16, 1152), lambda i, j: x[i, j] * 2.0, name="out")
    steps = [["CHR", 0, "shared", [1]], ["AN", 2, 0, 5], ["SP", 2, 1, 1152, [64], 1],
             ["AN", 2, 2, 6], ["CA", 1, 2, 0], ["FU", 1, [0, 1]], ["SP", 1, 0, 1152, [elements], 1],
             ["AN", 1, 1, 2], ["SP", 1, 0, 0, [64], 1], ["AN", 1, 1, 6]]  # fmt: skip
    result = replay(read_dag(te.create_prim_func([x, out])), parse_steps(steps), same_extents=False)
    assert sum("make no vector of a GPU" in note for note in result.notes) == left_out
