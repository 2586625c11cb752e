"""Keyword arguments as TVM 0.6 to 0.19 spelled them, in calls of scripts."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from compiler import legacy
from compiler.errors import InputError, RecordError


@pytest.fixture(autouse=True)
def installed():
    with legacy.installed():
        yield


@pytest.fixture(scope="module")
def library():
    with legacy.installed():
        from tvm import relay

        x = relay.var("x", shape=(2, 3))
        mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
        return relay.build(mod, "llvm")


def test_executors_are_made_of_a_context(library):
    from tvm.contrib import graph_runtime
    from tvm.contrib.debugger import debug_runtime

    graph, lib, ctx = library.get_graph_json(), library.get_lib(), tvm.cpu(0)
    data = np.array([[-1, 0, 1], [2, -2, 3]], "float32")
    for module in (
        graph_runtime.create(graph_json_str=graph, libmod=lib, ctx=ctx),
        debug_runtime.create(graph, lib, ctx=ctx),
    ):
        module.run(x=data)
        np.testing.assert_array_equal(module.get_output(0).asnumpy(), np.maximum(data, 0))
    for devices in ({}, {"device": ctx, "ctx": ctx}):
        with pytest.raises(InputError, match="ctx is an old name of device"):
            graph_runtime.create(graph, lib, **devices)


def test_functions_are_timed_on_a_context_and_saved_to_a_file(tmp_path):
    from tvm import te

    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i] + 1, name="b")
    add = tvm.build(te.create_schedule(b.op), [a, b], "llvm", name="add")
    arrays = [tvm.nd.array(np.zeros(8, "float32")) for _ in range(2)]
    assert add.time_evaluator("add", ctx=tvm.cpu(0), number=2, repeat=3)(*arrays).results[2] > 0
    assert add.time_evaluator("add", tvm.cpu(0), 2)(*arrays).mean > 0
    np.testing.assert_array_equal(arrays[1].asnumpy(), np.ones(8))
    assert arrays[1].context == tvm.cpu(0)
    add.save(file_name=str(tmp_path / "add.o"))
    assert (tmp_path / "add.o").stat().st_size


def test_loops_of_the_builder_have_a_type():
    builder = tvm.tir.ir_builder.create()
    out = builder.allocate("float32", 4, name="out", scope="global")
    with builder.for_range(0, 4, name="i", for_type="unroll") as i:
        out[i] = 1.0
    assert "T.unroll(4)" in str(builder.get())


def test_variables_have_a_dtype():
    assert str(tvm.tir.Var("x", dtype="int64").dtype) == "int64"
    assert str(tvm.tir.Var("x", "float32").dtype) == "float32"


def test_a_pipeline_of_relax_and_an_option_of_a_pass():
    from tvm import relax

    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.relu(x)))
    built = relax.build(builder.get(), target="llvm", pipeline=relax.get_pipeline("default"))
    machine = relax.VirtualMachine(built, tvm.cpu())
    data = np.array([-1, 2, -3, 4], "float32")
    np.testing.assert_array_equal(machine["main"](tvm.nd.array(data)).numpy(), np.maximum(data, 0))
    from tvm.tir.transform import RemoveWeightLayoutRewriteBlock

    assert RemoveWeightLayoutRewriteBlock(skip_ndarray_rewrite=True)


def test_tuners_take_the_device_and_the_kind_of_template():
    from tvm import auto_scheduler, autotvm

    assert auto_scheduler.LocalRunner(device=0, number=2)
    with pytest.raises(RecordError, match="device=1: candidates run on device 0"):
        auto_scheduler.LocalRunner(device=1)
    args = (("TENSOR", (1, 8), "float32"), ("TENSOR", (8, 8), "float32"), None, "float32")
    task = autotvm.task.create("dense_nopack.x86", args, "llvm", None, "direct")
    assert task.name == "dense_nopack.x86"
    with pytest.raises(RecordError, match="has no template key 'winograd'"):
        autotvm.task.create("dense_nopack.x86", args, "llvm", None, template_key="winograd")


def test_partitions_for_onednn_take_its_options():
    from tvm import relay

    x = relay.var("x", shape=(1, 8))
    mod = tvm.IRModule.from_expr(relay.nn.relu(relay.nn.dense(x, relay.var("w", shape=(8, 8)))))
    dnnl = relay.op.contrib.dnnl
    made = dnnl.partition_for_dnnl(mod, alter_layout=False, prune_subgraphs=False)
    assert tvm.ir.structural_equal(made, dnnl.partition_for_dnnl(mod))
