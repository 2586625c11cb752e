"""Tasks: what is extracted from a program, and templates of the user's own."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax, te

from compiler import autotvm, relay
from compiler.autotvm.task import TaskCandidate
from compiler.errors import LegacyImportError, RecordError
from schedules.config import ConfigEntity

TARGET = "llvm -mcpu=skylake-avx512"


@pytest.fixture(scope="module")
def network():
    """Twice the same convolution, a dense layer, and an attention."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((16, 16, 3, 3)).astype("float32")
    matrix = rng.standard_normal((16, 10)).astype("float32")
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((1, 16, 8, 8), "float32"))
    query = relax.Var("query", relax.TensorType((1, 32, 64), "float32"))
    with builder.function("main", [data, query]):
        with builder.dataflow():
            x = data
            for _ in range(2):
                conv = relax.op.nn.conv2d(x, relax.const(weight), padding=1)
                x = builder.emit(relax.op.nn.relu(builder.emit(conv)))
            flat = builder.emit(relax.op.mean(x, [2, 3]))
            scores = builder.emit(relax.op.matmul(flat, relax.const(matrix)))
            heads = builder.emit(relax.op.reshape(query, (1, 32, 4, 16)))
            q = builder.emit(relax.op.permute_dims(heads, [0, 2, 1, 3]))
            k = builder.emit(relax.op.permute_dims(heads, [0, 2, 3, 1]))
            weights = builder.emit(relax.op.nn.softmax(builder.emit(relax.op.matmul(q, k))))
            attended = builder.emit(relax.op.matmul(weights, q))
            out = builder.emit_output(relax.Tuple([scores, attended]))
        builder.emit_func_output(out)
    return builder.get()


def test_every_tunable_implementation_of_an_operator_is_a_task(network):
    tasks = autotvm.task.extract_from_program(network["main"], {}, TARGET)
    names = [task.name for task in tasks]
    assert {"conv2d_NCHWc.x86", "conv2d_direct.x86", "dense_pack.x86", "dense_nopack.x86"} <= {
        *names
    }
    assert len(tasks) == len({task.workload for task in tasks})


def test_a_task_counts_its_calls(network):
    tasks = autotvm.task.extract_from_program(network["main"], {}, TARGET)
    weights = {task.name: task.weight for task in tasks}
    assert weights["conv2d_NCHWc.x86"] == 2 and weights["dense_pack.x86"] == 1


def test_tasks_have_the_plain_arguments_of_old_logs(network):
    [task] = [
        task
        for task in autotvm.task.extract_from_program(network["main"], {}, TARGET)
        if task.name == "conv2d_NCHWc.x86"
    ]
    assert task.args == (
        ("TENSOR", (1, 16, 8, 8), "float32"), ("TENSOR", (16, 16, 3, 3), "float32"),
        (1, 1), (1, 1, 1, 1), (1, 1), "NCHW", "NCHW", "float32",
    )  # fmt: skip


def test_products_inside_an_attention_are_tasks_only_when_asked_for(network):
    for ops, wanted in ((None, False), (["nn.batch_matmul"], True), (["nn.dense"], False)):
        names = {
            task.name
            for task in autotvm.task.extract_from_program(network["main"], {}, TARGET, ops=ops)
        }
        assert ("batch_matmul.x86" in names) == wanted, ops


@pytest.mark.parametrize("op", ["nn.conv2d", tvm.ir.Op.get("relax.nn.conv2d"), relay.op.nn.conv2d])
def test_operators_restrict_the_tasks(network, op):
    tasks = autotvm.task.extract_from_program(network["main"], {}, TARGET, ops=(op,))
    assert tasks and all("conv2d" in task.name for task in tasks)


def test_tasks_of_several_programs_are_merged(network):
    once = autotvm.task.extract_from_program(network, {}, TARGET)
    twice = autotvm.task.extract_from_multiple_program([network, network], [{}, {}], TARGET)
    assert [t.workload for t in twice] == [t.workload for t in once]
    assert [t.weight for t in twice] == [2 * t.weight for t in once]


def test_the_fallback_is_in_the_space_of_every_task(network):
    for task in autotvm.task.extract_from_program(network, {}, TARGET):
        if task.name not in ("dense_nopack.x86", "dense_pack.x86", "conv2d_NCHWc.x86"):
            assert task.fallback is not None, task
        if task.fallback is not None:
            assert task.config_space.get(task.fallback.index).knobs == task.fallback.knobs


def test_an_unknown_template_and_wrong_arguments_are_errors():
    with pytest.raises(RecordError, match="conv5d"):
        autotvm.task.create("conv5d.x86", (), TARGET)
    with pytest.raises(RecordError, match="dense_pack"):
        autotvm.task.create("dense_pack.x86", ((1, 2), 3), TARGET)


@pytest.mark.parametrize(
    ("name", "data", "weight"),
    [
        ("conv2d_NCHWc.x86", (1, 16, 10, 10), (32, 16, 3, 3)),
        ("conv3d_ndhwc.x86", (1, 4, 10, 10, 16), (3, 3, 3, 16, 32)),
    ],
)
def test_one_number_stands_for_all_axes_of_a_window(name, data, weight):
    def flop(*window):
        tensors = [("TENSOR", shape, "float32") for shape in (data, weight)]
        tail = (1, "float32") if len(data) == 5 else ("NCHW", "NCHW", "float32")
        return autotvm.task.create(name, (*tensors, *window, *tail), TARGET).flop

    rank = len(data) - 2
    assert flop(2, 1, 1) == flop((2,) * rank, (1,) * 2 * rank, (1,) * rank)
    assert flop(2, (1,) * rank, 1) == flop(2, 1, 1) < flop(1, 1, 1)
    for window, message in (
        (("two", 1, 1), "invalid literal"),
        ((0, 1, 1), "strides and dilations are positive"),
        (((1,) * (rank + 1), 1, 1), f"{rank} axes have {rank} strides"),
        ((1, (1,) * (rank + 1), 1), f"and {rank} or {2 * rank} pads"),
        ((1, 1, 9), "the kernel is larger than the padded data"),
    ):
        with pytest.raises(RecordError, match=f"can't take the arguments .*: .*{message}"):
            flop(*window)


@pytest.mark.parametrize(
    ("name", "shapes", "rest", "message"),
    [
        ("conv2d_NCHWc.x86", ((1, 16, 9, 9), (8, 12, 3, 3)), (1, 1, 1), "no groups of 12"),
        (
            "conv2d_NCHWc.x86",
            ((1, 16, 9, 9), (8, 16, 3, 3)),
            (1, 1, 1, "NHWC", "NHWC", "float32"),
            "layout NHWC is not NCHW",
        ),
        ("dense_pack.x86", ((1, 8), (4, 9)), (None, "float32"), "rows of 9, the data of 8"),
        ("dense_pack.x86", ((0, 8), (4, 8)), (None, "float32"), "no elements"),
        ("dense_pack.x86", ((1, 8), (4, 8)), (), "arguments are missing"),
        ("batch_matmul.x86", ((2, 8, 4), (2, 6, 5)), (None, "float32"), "have no product"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(name, shapes, rest, message):
    tensors = [("TENSOR", shape, "float32") for shape in shapes]
    with pytest.raises(RecordError, match=f"task {name}: .*{message}"):
        autotvm.task.create(name, (*tensors, *rest), TARGET)


def test_outside_of_a_template_a_config_is_a_fallback_unless_one_is_applied(caplog):
    assert autotvm.get_config().is_fallback
    assert "outside of a template" in caplog.text
    applied = ConfigEntity({}, "test", False)
    with autotvm.task.ApplyConfig(applied), autotvm.task.ApplyHistoryBest([]):
        assert autotvm.get_config() is applied


@autotvm.template("test.scaled", reference=lambda x: x * 3)
def scaled(n, dtype):
    cfg = autotvm.get_config()
    x = te.placeholder((n, n), dtype, name="x")
    out = te.compute((n, n), lambda i, j: x[i, j] * tvm.tirx.const(3, dtype), name="out")
    sch = tvm.s_tir.Schedule(te.create_prim_func([x, out]))
    i, j = sch.get_loops(sch.get_sblock("out"))
    cfg.define_split("tile_i", n, num_outputs=3)
    cfg.define_split("tile_j", n, policy="power2")
    cfg.define_reorder("order", [0, 1], "all")
    cfg.define_annotate("ann", [0, 1], "try_unroll_vec")
    split_i, split_j = cfg["tile_i"].apply(sch, i), cfg["tile_j"].apply(sch, j)
    inner = cfg["order"].apply(sch, [split_i[-1], split_j[-1]])
    cfg["ann"].apply(sch, inner, max_unroll=8)
    return sch, [x, out]


@autotvm.register_topi_compute("test.row_sum")
def row_sum(cfg, data):
    k = te.reduce_axis((0, data.shape[1]), "k")
    cfg.define_split("tile_k", cfg.reduce_axis(k), num_outputs=2)
    return te.compute((data.shape[0],), lambda i: te.sum(data[i, k], axis=k), name="out")


@autotvm.register_topi_schedule("test.row_sum")
def schedule_row_sum(cfg, sch):
    _, k = sch.get_loops(sch.get_sblock("out"))
    cfg["tile_k"].apply(sch, k)


def _run(task, config, *inputs):
    lowered = TaskCandidate(task, config).lower()
    out = np.zeros(lowered.args[-1].shape, lowered.args[-1].dtype)
    tensors = [tvm.runtime.tensor(value) for value in (*inputs, out)]
    tvm.compile(lowered.mod, lowered.target)["main"](*tensors)
    return tensors[-1].numpy()


def test_a_users_template_is_collected_and_every_kind_of_knob_applies():
    task = autotvm.task.create("test.scaled", (12, "float32"), "llvm")
    assert [len(c) for c in task.config_space.space_map.values()] == [18, 4, 2, 8]
    x = np.random.default_rng(0).random((12, 12), "float32")
    for index in (0, 77, 500, len(task.config_space) - 300):
        config = task.config_space.get(index)
        try:
            found = _run(task, config, x)
        except autotvm.InstantiationError as error:
            assert "unroll" in str(error)
            continue
        np.testing.assert_allclose(found, x * 3, rtol=1e-6)


def test_a_template_sees_the_config_that_it_is_run_with():
    task = autotvm.task.create("test.scaled", (12, "float32"), "llvm")
    config = task.config_space.get(77)
    sch, _ = task.instantiate(config)
    loops = [int(sch.get(loop).extent) for loop in sch.get_loops(sch.get_sblock("out"))]
    assert loops[1] == config["tile_i"].size[1]


def test_a_compute_and_a_schedule_make_a_template():
    data = ("TENSOR", (6, 20), "float32")
    task = autotvm.task.create("test.row_sum", (data,), "llvm")
    assert len(task.config_space) == 6
    x = np.random.default_rng(0).random((6, 20), "float32")
    for index in range(6):
        found = _run(task, task.config_space.get(index), x)
        np.testing.assert_allclose(found, x.sum(axis=1), rtol=1e-5)


def test_operations_are_counted_where_the_template_says_nothing():
    assert autotvm.task.create("test.scaled", (12, "float32"), "llvm").flop == 144


def test_tensors_are_serialized_by_shape_and_dtype():
    x = te.placeholder((3, 4), "float32", name="x")
    args = autotvm.task.serialize_args([x, (1, 2), "NCHW", None])
    assert args == (("TENSOR", (3, 4), "float32"), (1, 2), "NCHW", None)
    back = autotvm.task.deserialize_args(args)
    assert tuple(back[0].shape) == (3, 4) and back[1:] == [(1, 2), "NCHW", None]
    assert autotvm.task.args_to_workload([x], "task") == ("task", args[0])


def test_tasks_go_to_other_processes(network):
    for task in autotvm.task.extract_from_program(network, target=TARGET):
        copy = pickle.loads(pickle.dumps(task))
        assert (copy.workload, copy.weight, str(copy.target)) == (
            task.workload, task.weight, str(task.target),
        )  # fmt: skip
        assert len(copy.config_space) == len(task.config_space)


@pytest.mark.parametrize("name", ["TaskExtractEnv", "TracingEnvironment", "get_workload"])
def test_names_of_tvm_that_are_gone_say_what_to_use(name):
    with pytest.raises(LegacyImportError, match=f"{name} is not supported: "):
        getattr(autotvm.task, name)
    assert autotvm.task.clear_fallback_cache("llvm", ("dense_nopack.x86",)) is None


def test_the_record_module_picks_the_best_records_of_a_log(tmp_path):
    log = Path(__file__).parents[1] / "records/autotvm/data/formats/good_mixed.log"
    out = tmp_path / "best.log"
    words = ["-m", "compiler.autotvm.record", "--mode", "pick", "--i", str(log), "--o", str(out)]
    subprocess.run([sys.executable, *words], check=True)
    assert 0 < len(list(autotvm.load_from_file(out))) <= len(list(autotvm.load_from_file(log)))
