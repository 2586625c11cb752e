"""Task extraction: which kernels become tasks, their weights, targets and descriptions."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
import tvm
from tvm import relax, te, topi
from tvm.target import Target

from compiler.auto_scheduler import dispatcher, extract_tasks
from compiler.auto_scheduler.record import workload_key
from compiler.auto_scheduler.task import HardwareParams, has_reduction, tasks_of_kernels
from compiler.errors import TargetError

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
    assert tasks[0].desc.startswith("conv2d") and "relu" in tasks[0].desc
    assert tasks[1].desc.startswith("matmul")
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
    from compiler.lowering import extract

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
