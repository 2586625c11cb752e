"""The build driver on small modules: results, schedule sources, options, subgraphs."""

import gc
import inspect
import json

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.op import nn
from tvm.script import ir as I
from tvm.script import relax as R

from compiler import auto_scheduler, autotvm, relay
from compiler.errors import BuildError
from compiler.partition import Strategy, partition, register, unregister
from compiler.runtime import graph_executor, load_module


def conv_module(channels=16, size=10):
    """conv2d 3x3 -> bias -> relu -> max_pool -> mean -> dense, weights as parameters of main."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, channels, size, size), "float32"))
    w = relax.Var("w", relax.TensorType((32, channels, 3, 3), "float32"))
    b = relax.Var("b", relax.TensorType((1, 32, 1, 1), "float32"))
    d = relax.Var("d", relax.TensorType((32, 10), "float32"))
    with builder.function("main", [x, w, b, d]):
        with builder.dataflow():
            y = builder.emit(nn.conv2d(x, w, padding=1))
            y = builder.emit(nn.relu(builder.emit(relax.op.add(y, b))))
            y = builder.emit(nn.max_pool2d(y, (2, 2), (2, 2)))
            y = builder.emit(relax.op.mean(y, [2, 3]))
            out = builder.emit_output(relax.op.matmul(y, d))
        builder.emit_func_output(out)
    rng = np.random.default_rng(0)
    params = {
        var.name: rng.standard_normal([int(s) for s in var.ty.shape.values]).astype("float32")
        for var in (w, b, d)
    }
    return builder.get(), params


def reference(x, params):
    w, b, d = (params[name].astype("f8") for name in "wbd")
    padded = np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    y = np.maximum(np.einsum("nchwij,ocij->nohw", windows, w) + b, 0)
    n, c, h, wd = y.shape
    return y.reshape(n, c, h // 2, 2, wd // 2, 2).max((3, 5)).mean((2, 3)) @ d


def run(lib, **inputs):
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.run(**inputs)
    return module.get_output(0).numpy()


X = np.random.default_rng(1).standard_normal((1, 16, 10, 10)).astype("float32")


@pytest.mark.parametrize("opt_level", [0, 2, 3])
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64"])
def test_plain_build_computes_the_right_numbers(opt_level, target):
    mod, params = conv_module()
    with tvm.transform.PassContext(opt_level=opt_level):
        lib = relay.build(mod, target, params=params)
    np.testing.assert_allclose(run(lib, x=X), reference(X, params), rtol=2e-5, atol=2e-5)
    assert lib.report.use_topi_schedule
    assert not lib.report.unscheduled
    assert {kernel.source for kernel in lib.report.kernels} == {"topi:fallback"}


def test_weights_that_stay_parameters_are_inputs_and_packed_at_run_time():
    mod, params = conv_module()
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, "llvm")
    got = run(lib, x=X, **params)
    np.testing.assert_allclose(got, reference(X, params), rtol=2e-5, atol=2e-5)


def test_report_names_fused_operators_flops_and_bytes():
    mod, params = conv_module()
    with tvm.transform.PassContext(opt_level=3, disabled_pass=["Winograd"]):
        report = relay.build(mod, "llvm", params=params).report
    conv = next(kernel for kernel in report.kernels if "nn.conv2d" in kernel.operators)
    assert conv.operators == ["nn.conv2d", "add", "nn.relu"]
    outside = 2 * 3 * 10  # taps above and below the image are left out
    assert conv.flops >= 2 * 32 * 16 * (9 * 100 - outside)
    assert conv.bytes > 4 * (1600 + 3200)
    assert conv.name in str(report)
    assert f"packed parameters: {report.weights_bytes / 1e6:.2f} MB" in str(report)
    assert report.library_bytes == 0 and "library:" not in str(report)
    assert type(report).from_json(report.to_json()) == report


def test_a_library_is_little_larger_than_its_packed_parameters(tmp_path):
    mod, params = conv_module(channels=64, size=28)
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, "llvm", params=params)
    packed = sum(value.numpy().nbytes for value in lib.params.values())
    assert lib.report.weights_bytes == packed
    path = tmp_path / "lib.so"
    lib.export_library(path)
    assert lib.report.library_bytes == path.stat().st_size
    assert packed < path.stat().st_size <= 1.1 * packed + 5e6
    assert f"library: {path.stat().st_size / 1e6:.2f} MB" in str(lib.report)
    assert load_module(path).report["library_bytes"] == path.stat().st_size


def test_strassens_product_is_only_where_a_build_requires_it():
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((1, 128, 512), "f4"), rng.standard_normal((512, 512), "f4")
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType(x.shape, "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(data, relax.const(weight)))
            out = builder.emit_output(relax.op.nn.relu(product))
        builder.emit_func_output(out)
    expected = np.maximum(x.astype("f8") @ weight.astype("f8"), 0)
    for opt_level, required, name in (
        (3, [], "dense_packed.x86"),
        (3, ["Strassen"], "dense_strassen.x86"),
        (2, ["Strassen"], "dense_strassen.x86"),
    ):
        with tvm.transform.PassContext(opt_level=opt_level, required_pass=required):
            lib = relay.build(builder.get(), "llvm -mcpu=x86-64-v3")
        assert [kernel.implementation for kernel in lib.report.kernels] == [name]
        np.testing.assert_allclose(run(lib, x=x), expected, atol=5e-6 * expected.max())


def test_strassens_product_of_a_strided_convolution_is_added_to_a_tensor():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 512, 27, 28), "f4")
    y = rng.standard_normal((1, 512, 14, 14), "f4")
    weight = rng.standard_normal((512, 512, 1, 1), "f4")
    builder = relax.BlockBuilder()
    inputs = [relax.Var(n, relax.TensorType(a.shape, "float32")) for n, a in (("x", x), ("y", y))]
    with builder.function("main", inputs):
        with builder.dataflow():
            conv = relax.op.nn.conv2d(inputs[0], relax.const(weight), strides=2)
            out = builder.emit_output(relax.op.add(builder.emit(conv), inputs[1]))
        builder.emit_func_output(out)
    expected = np.einsum("ncyx,oc->noyx", x[:, :, ::2, ::2], weight[:, :, 0, 0], dtype="f8") + y
    with tvm.transform.PassContext(opt_level=3, required_pass=["Strassen"]):
        lib = relay.build(builder.get(), "llvm -mcpu=x86-64-v3")
    assert "conv2d_strassen.x86" in [kernel.implementation for kernel in lib.report.kernels]
    np.testing.assert_allclose(run(lib, x=x, y=y), expected, atol=5e-6 * expected.max())


def test_each_optional_step_is_turned_off_by_its_name():
    mod, params = conv_module(channels=64, size=28)
    x = np.random.default_rng(2).standard_normal((1, 64, 28, 28)).astype("float32")

    def build(**context):
        with tvm.transform.PassContext(opt_level=3, **context):
            lib = relay.build(mod, "llvm", params=params)
        return [kernel.implementation for kernel in lib.report.kernels], run(lib, x=x)

    normal, y = build()
    assert "conv2d_winograd.x86" in normal
    direct, z = build(disabled_pass=["Winograd"])
    assert "conv2d_direct.x86" in direct and "conv2d_winograd.x86" not in direct
    plain, w = build(disabled_pass=["AlterOpLayout"])
    assert plain != normal
    expected = reference(x, params)
    for got in (y, z, w):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_use_topi_schedule_is_neither_argument_nor_pass_context_key():
    assert "use_topi_schedule" not in inspect.signature(relay.build).parameters
    for key in ("use_topi_schedule", "relay.backend.use_topi_schedule"):
        with pytest.raises(AttributeError, match="Invalid config option"):
            tvm.transform.PassContext(config={key: True})


def conv_record(tile_ow):
    """One AutoTVM record for the convolution of `conv_module`."""
    tensors = [["TENSOR", [1, 16, 10, 10], "float32"], ["TENSOR", [32, 16, 3, 3], "float32"]]
    args = [*tensors, [1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"]
    entity = [
        ["tile_ic", "sp", [-1, 8]],
        ["tile_oc", "sp", [-1, 8]],
        ["tile_ow", "sp", [-1, tile_ow]],
        ["unroll_kw", "ot", True],
    ]
    return json.dumps(
        {
            "input": ["llvm -mcpu=core-avx2", "conv2d_NCHWc.x86", args, {}],
            "config": {"index": 1, "code_hash": None, "entity": entity},
            "result": [[0.001], 0, 1.0, 1600000000.0],
            "version": 0.2,
            "tvm_version": "0.8.dev0",
        }
    )


def test_build_under_an_autotvm_log_takes_its_config_and_says_so(tmp_path):
    log = tmp_path / "conv.log"
    log.write_text("\n# a comment\n" + conv_record(5) + "\n")
    mod, params = conv_module()
    with autotvm.apply_history_best(str(log)), tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, "llvm", params=params)
    conv = next(kernel for kernel in lib.report.kernels if "nn.conv2d" in kernel.operators)
    assert conv.implementation == "conv2d_NCHWc.x86"
    assert conv.source == "topi:conv.log:3"
    assert lib.report.use_topi_schedule
    np.testing.assert_allclose(run(lib, x=X), reference(X, params), rtol=2e-5, atol=2e-5)


def record_log(path, mod, params, wanted):
    """A log of one real trace for each task whose description has `wanted` in it."""
    from tvm import s_tir

    from compiler.records.auto_scheduler.record import Record, save_records
    from compiler.records.auto_scheduler.workload import canonical

    tasks, _ = auto_scheduler.extract_tasks(mod["main"], params, "llvm")
    records = []
    for task in tasks:
        if wanted not in task.desc:
            continue
        sch = s_tir.Schedule(canonical(task.func))
        out = sch.get_child_blocks(sch.get_sblock("root"))[-1]
        loops = sch.get_loops(out)
        sch.parallel(sch.fuse(*loops[:2]))
        trace = json.loads(str(sch.trace.as_json()).replace("'", '"'))
        records.append(Record(task.workload_key, json.loads(str(task.target)), trace, (1e-3,)))
    save_records(path, records)
    return len(records)


def test_build_under_an_auto_scheduler_log_takes_its_records_and_counts_the_rest(tmp_path, caplog):
    mod, params = conv_module()
    log = tmp_path / "ansor.json"
    assert record_log(log, mod, params, "conv2d") == 1
    with auto_scheduler.ApplyHistoryBest(str(log)), tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, "llvm", params=params)
    assert not lib.report.use_topi_schedule
    conv = next(kernel for kernel in lib.report.kernels if "nn.conv2d" in kernel.operators)
    assert conv.source == "auto_scheduler:ansor.json:1"
    rest = [kernel for kernel in lib.report.kernels if kernel is not conv]
    assert rest and all(kernel.source == "topi:fallback" for kernel in rest)
    warnings = [r for r in caplog.records if "no auto_scheduler record" in r.getMessage()]
    assert len(warnings) == 1 and str(len(rest)) in warnings[0].getMessage()
    np.testing.assert_allclose(run(lib, x=X), reference(X, params), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("level", [2, 3])
def test_a_log_that_serves_no_kernel_of_a_lower_opt_level_is_explained(level):
    mod, params = conv_module()
    with auto_scheduler.ApplyHistoryBest([]), tvm.transform.PassContext(opt_level=level):
        lib = relay.build(mod, "llvm", params=params)
    (note,) = [note for note in lib.report.notes if "no auto_scheduler record" in note]
    assert ("build under PassContext(opt_level=3)" in note) == (level == 2)


def test_with_both_logs_the_auto_scheduler_record_comes_first(tmp_path):
    mod, params = conv_module()
    ansor, topi = tmp_path / "ansor.json", tmp_path / "conv.log"
    topi.write_text(conv_record(5) + "\n")
    assert record_log(ansor, mod, params, "max_pool2d") == 1
    with (
        autotvm.apply_history_best(str(topi)),
        auto_scheduler.ApplyHistoryBest(str(ansor)),
        tvm.transform.PassContext(opt_level=3),
    ):
        lib = relay.build(mod, "llvm", params=params)
    sources = {kernel.source for kernel in lib.report.kernels}
    assert {"auto_scheduler:ansor.json:1", "topi:conv.log:1", "topi:fallback"} == sources
    np.testing.assert_allclose(run(lib, x=X), reference(X, params), rtol=2e-5, atol=2e-5)


def test_task_extraction_gives_unscheduled_functions_with_weights():
    mod, params = conv_module()
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, "llvm")
    assert len(tasks) == len(weights) and all(weight >= 1 for weight in weights)
    conv = next(task for task in tasks if "conv2d" in task.desc)
    assert "schedule_rule" not in conv.func.script().replace('"schedule_rule": "None"', "")
    assert "T.parallel" not in conv.func.script() and "T.vectorized" not in conv.func.script()
    assert conv.flop_ct > 2 * 32 * 16 * 9 * 100


def test_module_is_not_changed_by_a_build():
    mod, params = conv_module()
    before = mod.script()
    relay.build(mod, "llvm", params=params)
    assert mod.script() == before


@pytest.mark.parametrize(
    "change,message",
    [
        ({"w": np.zeros((1, 2, 3), "float32")}, "'w' has shape"),
        ({"w": np.zeros((32, 16, 3, 3), "int8")}, "'w' has dtype"),
    ],
)
def test_a_parameter_that_does_not_fit_is_named(change, message):
    mod, params = conv_module()
    with pytest.raises(BuildError, match=message):
        relay.build(mod, "llvm", params={**params, **change})


def test_what_belonged_to_other_runtimes_is_refused():
    mod, params = conv_module()
    with pytest.raises(BuildError, match="workspace_memory_pools"):
        relay.build(mod, "llvm", workspace_memory_pools=object(), params=params)
    with pytest.raises(BuildError, match="crt"):
        relay.build(mod, "llvm", executor="crt", params=params)
    with pytest.raises(BuildError, match="a frontend returns"):
        relay.build((mod, params), "llvm")


def test_a_dynamic_dimension_has_its_name():
    @I.ir_module
    class Dynamic:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            with R.dataflow():
                y = R.nn.relu(x)
                R.output(y)
            return y

    library = relay.build(Dynamic, "llvm")
    assert str(library.metadata.inputs[0]) == "x: float32[n, 4]"


@pytest.fixture
def backend():
    """The name of a partitioner that the test registers."""
    yield "build_test_backend"
    unregister("build_test_backend")


def claim(backend, names, **attrs):
    """A partitioner that claims operators by name and sets attributes."""

    def supported_ops(graph_json, ids, options):
        for index, node in enumerate(json.loads(graph_json)["nodes"]):
            if node["op"] in names:
                ids[index] = -1

    def accept(subgraph_json, subgraph_id, options, found, args, aux):
        found.update(attrs)
        return True

    register(backend, [Strategy("by_name", supported_ops, accept)])


def test_accepted_subgraphs_are_compiled_for_their_own_target(backend):
    mod, params = conv_module()
    claim(backend, {"nn.conv2d", "add"}, target="llvm -mcpu=x86-64-v3", color="red")
    parted = partition(mod, backend, params)
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(parted, "llvm", params=params)
    np.testing.assert_allclose(run(lib, x=X), reference(X, params), rtol=2e-5, atol=2e-5)
    conv = next(kernel for kernel in lib.report.kernels if "nn.conv2d" in kernel.operators)
    assert conv.backend == backend
    # Only a constant weight can be transformed: it moved into the claimed function.
    assert conv.implementation == "conv2d_winograd.x86"
    assert all(k.backend == "" for k in lib.report.kernels if "nn.max_pool2d" in k.operators)
    (info,) = lib.metadata.partition.values()
    assert info["target"].startswith("llvm") and "x86-64-v3" in info["target"]
    assert info["attrs"]["color"] == "red"


def test_one_kernel_for_two_targets_is_compiled_twice(backend):
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType((64, 128), "float32")) for name in "xy")
    with builder.function("main", [x, y]):
        with builder.dataflow():
            parts = [builder.emit(relax.op.exp(x)), builder.emit(relax.op.exp(y))]
            out = builder.emit_output(relax.Tuple(parts))
        builder.emit_func_output(out)
    mod = builder.get()

    def first_only(graph_json, ids, options):
        nodes = json.loads(graph_json)["nodes"]
        index = next(i for i, node in enumerate(nodes) if node["op"] == "exp")
        ids[index] = -1

    def accept(subgraph_json, subgraph_id, options, attrs, args, aux):
        attrs["target"] = "llvm -mcpu=x86-64"
        return True

    register(backend, [Strategy("first", first_only, accept)])
    lib = relay.build(partition(mod, backend), "llvm")
    data = np.random.default_rng(3).standard_normal((64, 128)).astype("float32")
    np.testing.assert_allclose(run(lib, x=data, y=data), np.exp(data.astype("f8")), rtol=1e-5)
    names = [k.name for k in lib.report.kernels if k.operators == ["exp"]]
    assert len(names) == 2 and len(set(names)) == 2


def test_the_report_tells_logarithms_apart():
    x = relay.var("x", shape=(4, 5), dtype="float32")
    logs = [relay.log(x), relay.log2(x), relay.log10(relay.negative(x))]
    library = relay.build(relay.Function([x], relay.Tuple(logs)), "llvm")
    found = sorted(name for kernel in library.report.kernels for name in kernel.operators)
    assert found == ["log", "log10", "log2", "negative"]


def test_builds_of_the_same_network_leave_no_objects_behind():
    counts = []
    for _ in range(4):
        x = relay.var("x", shape=(1, 20))
        product = relay.nn.dense(x, relay.const(np.ones((8, 20), "float32")))
        relay.build(relay.Function([x], relay.nn.relu(product)), "llvm")
        gc.collect()
        counts.append(sum(isinstance(each, relax.TensorType) for each in gc.get_objects()))
    assert counts[1:] == counts[1:2] * 3, counts
