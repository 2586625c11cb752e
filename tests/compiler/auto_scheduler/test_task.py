"""Task extraction: which kernels become tasks, their weights, targets and descriptions."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
import tvm
from tvm import relax, te, topi
from tvm.target import Target

from compiler.auto_scheduler import (
    extract_tasks,
    make_workload_key,
    register_workload,
    save_records,
)
from compiler.auto_scheduler.task import HardwareParams, SearchTask, has_reduction, tasks_of_kernels
from compiler.errors import RecordError, TargetError
from compiler.records.ansor.record import AnsorRecord
from compiler.records.auto_scheduler import dispatcher
from compiler.records.auto_scheduler.record import workload_key

CPU = Target({"kind": "llvm", "mcpu": "x86-64-v3"})


@dataclass
class Kernel:
    func: object
    operators: tuple


def dense(n=8):
    x, w = te.placeholder((n, 16), name="x"), te.placeholder((32, 16), name="w")
    return Kernel(te.create_prim_func([x, w, topi.nn.dense(x, w)]), ("dense",))


def relu(n=8):
    x = te.placeholder((n, 16), name="x")
    return Kernel(te.create_prim_func([x, topi.nn.relu(x)]), ("relu",))


def dynamic():
    n = te.var("n")
    x = te.placeholder((n, 16), name="x")
    return Kernel(te.create_prim_func([x, topi.sum(x, axis=1)]), ("sum",))


def test_equal_kernels_are_one_task_weighted_by_their_calls():
    kernels = [(CPU, dense()), (CPU, dense(4)), (CPU, dense()), (CPU, dense())]
    first, second = tasks_of_kernels(kernels)
    assert (first.weight, second.weight) == (3, 1)
    assert first.workload_key == workload_key(dense().func)
    assert first.desc == "dense (8x16, 32x16) -> 8x32"
    assert first.flop_ct == 2 * 8 * 16 * 32


def test_kernels_without_reduction_are_tasks_only_on_request():
    kernels = [(CPU, relu()), (CPU, dense())]
    assert [t.desc.split()[0] for t in tasks_of_kernels(kernels)] == ["dense"]
    both = tasks_of_kernels(kernels, include_simple_tasks=True)
    assert [t.desc.split()[0] for t in both] == ["relu", "dense"]
    assert has_reduction(dense().func) and not has_reduction(relu().func)


def test_kernels_of_dynamic_shape_are_no_tasks():
    assert tasks_of_kernels([(CPU, dynamic())]) == []


def test_same_kernel_on_two_targets_is_two_tasks():
    gpu = Target({"kind": "cuda", "arch": "sm_90"})
    tasks = tasks_of_kernels([(CPU, dense()), (gpu, dense())])
    assert [str(t.target.kind.name) for t in tasks] == ["llvm", "cuda"]


def test_other_targets_complete_a_subgraph_target_that_is_only_a_kind():
    full = Target({"kind": "cuda", "arch": "sm_90", "max_threads_per_block": 1024})
    bare, own = Target("cuda"), Target({"kind": "cuda", "arch": "sm_70", "l2_cache_size_bytes": 1})
    tasks = tasks_of_kernels([(bare, dense()), (own, dense(4))], other_targets=[full])
    assert tasks[0].target.attrs["arch"] == "sm_90"
    assert tasks[1].target.attrs["arch"] == "sm_70"


def test_hardware_params_override_the_target():
    (task,) = tasks_of_kernels([(CPU, dense())], HardwareParams(num_cores=7, warp_size=32))
    assert task.target.attrs["num-cores"] == 7
    assert task.target.attrs["mcpu"] == "x86-64-v3"


@pytest.fixture(scope="module")
def module():
    """conv2d -> add -> relu, twice the same, then a flatten and a dense."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 10, 10), "float32"))
    w = relax.Var("w", relax.TensorType((8, 8, 3, 3), "float32"))
    b = relax.Var("b", relax.TensorType((1, 8, 1, 1), "float32"))
    d = relax.Var("d", relax.TensorType((800, 10), "float32"))
    with builder.function("main", [x, w, b, d]):
        with builder.dataflow():
            y = x
            for _ in range(2):
                y = builder.emit(relax.op.nn.conv2d(y, w, padding=1))
                y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(y, b))))
            y = builder.emit(relax.op.reshape(y, (1, 800)))
            out = builder.emit_output(relax.op.matmul(y, d))
        builder.emit_func_output(out)
    return builder.get()


def test_module_gives_unscheduled_functions_with_weights(module, tmp_path):
    dump = tmp_path / "dags.json"
    tasks, weights = extract_tasks(
        module, None, "llvm -mcpu=x86-64-v3", dump_workload_to_dag_log=dump
    )
    assert weights == [task.weight for task in tasks] == [2, 1]
    assert tasks[0].desc.startswith("nn.conv2d") and "relu" in tasks[0].desc
    assert tasks[1].desc.startswith("nn.dense")
    for task in tasks:
        assert isinstance(task.func, tvm.tirx.PrimFunc)
        text = task.func.script()
        assert "T.parallel" not in text and "T.vectorized" not in text
        assert "schedule_rule" not in text
    assert set(json.loads(dump.read_text())) == {task.workload_key for task in tasks}


def test_main_alone_and_params_are_taken(module):
    params = {"w": np.ones((8, 8, 3, 3), "float32"), "b": np.zeros((1, 8, 1, 1), "float32")}
    tasks, weights = extract_tasks(module["main"], params, "llvm")
    assert weights == [2, 1]
    simple, _ = extract_tasks(module["main"], params, "llvm", include_simple_tasks=True)
    assert len(simple) >= len(tasks)


def test_extraction_is_marked_while_kernels_are_made_and_not_after(module, monkeypatch):
    from compiler.lowering.selection import extract

    seen = []

    def kernels(mod, params, target):
        seen.append((dispatcher.is_extracting(), tvm.transform.PassContext.current().opt_level))
        return []

    monkeypatch.setattr(extract, "kernels", kernels)
    with tvm.transform.PassContext(disabled_pass=["FoldConstant"]):
        assert extract_tasks(module, None, "llvm", opt_level=2) == ([], [])
    assert seen == [(True, 2)]
    assert not dispatcher.is_extracting()


def test_unknown_target_is_a_target_error(module):
    with pytest.raises(TargetError):
        extract_tasks(module, None, "toaster")
    with pytest.raises(TargetError):
        extract_tasks(module, None, "llvm", other_targets=["toaster"])


@register_workload("test_task.product", override=True)
def product(shape, columns):
    x, w = te.placeholder(shape, name="x"), te.placeholder((shape[1], columns), name="w")
    k = te.reduce_axis((0, shape[1]), name="k")
    out = te.compute(
        (shape[0], columns), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="out"
    )
    return [x, w, out]


# Rows and columns in tiles of 4 and 8; rows' tiles in parallel, columns of a tile in a vector.
TILED = [
    ["SP", 2, 0, 16, [4], 1], ["SP", 2, 2, 32, [8], 1], ["RE", 2, [0, 2, 4, 1, 3]],
    ["AN", 2, 0, 3], ["AN", 2, 4, 2],
]  # fmt: skip


def ansor_record(key, seconds, steps=TILED):
    return AnsorRecord(key, "llvm -keys=cpu", steps, (seconds,))


def test_a_log_of_the_old_auto_scheduler_schedules_a_registered_workload(tmp_path):
    log = tmp_path / "ansor.json"
    key = '["test_task.product", [16, 8], 32]'
    assert make_workload_key("test_task.product", ((16, 8), 32)) == key
    other_tile = [["SP", 2, 0, 16, [2], 1], *TILED[1:]]
    save_records(log, [
        ansor_record(key, 2e-6, other_tile), ansor_record(key, 1e-6),
        ansor_record('["test_task.product", [16, 8], 64]', 1e-9, []),
        ansor_record('["test_task.other", [16, 8], 32]', 1e-9, []),
    ])  # fmt: skip
    task = SearchTask("test_task.product", args=((16, 8), 32), target=CPU)
    schedule, args = task.apply_best(log)
    assert [str(arg.name) for arg in args] == ["x", "w", "out"]
    kinds = [
        (int(schedule.get(loop).extent), schedule.get(loop).kind)
        for loop in schedule.get_loops(schedule.get_sblock("out_update"))
    ]
    parallel, vectorized = tvm.tirx.ForKind.PARALLEL, tvm.tirx.ForKind.VECTORIZED
    assert kinds == [(4, parallel), (4, 0), (8, 0), (4, 0), (8, vectorized)]

    x, w = (np.random.rand(*shape).astype("float32") for shape in ((16, 8), (8, 32)))
    out = tvm.runtime.empty((16, 32), "float32")
    tvm.compile(schedule.mod, CPU)(tvm.runtime.tensor(x), tvm.runtime.tensor(w), out)
    np.testing.assert_allclose(out.numpy(), x @ w, rtol=1e-5)
    assert "sch.vectorize" in task.print_best(log)

    with pytest.raises(RecordError, match="has no schedule of"):
        SearchTask("test_task.product", ((16, 8), 16), target=CPU).apply_best(log)
    with pytest.raises(RecordError, match="has no schedule of"):
        SearchTask("test_task.product", ((16, 8), 32), target="cuda -arch=sm_90").apply_best(log)


def test_a_record_of_another_compute_under_the_workloads_name_is_named(tmp_path):
    log = tmp_path / "ansor.json"
    save_records(log, [ansor_record('["test_task.product", [16, 8], 32]', 1e-6, [["CI", 7]])])
    task = SearchTask("test_task.product", ((16, 8), 32), target=CPU)
    with pytest.raises(RecordError, match=r"ansor\.json:1: can't be replayed: .*7"):
        task.apply_best(log)


def test_the_key_of_an_extracted_task_makes_the_task_again(module):
    (task, *_), _ = extract_tasks(module, {}, "llvm")
    again = SearchTask(workload_key=task.workload_key, target="llvm")
    assert again.workload_key == task.workload_key and again.registered_key is None
