"""`baton.precision`: a key of PassContext, what it builds, and what the report says of it."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import PassContext, auto_scheduler, autotvm, precision, relay
from compiler.errors import BuildError
from compiler.lowering import pass_flags
from compiler.lowering.report import Report
from compiler.records.auto_scheduler.record import Record, save_records
from compiler.records.auto_scheduler.template import Template
from compiler.records.autotvm.record import LoggedTask, MeasureInput
from compiler.records.measure_result import MeasureResult
from compiler.runtime import graph_executor
from compiler.target import parse
from schedules import strategy
from schedules.conv2d import Conv2dWorkload
from schedules.x86.conv import winograd

TARGET = "llvm -mcpu=x86-64-v3"


def context(value=None, **others):
    config = {} if value is None else {"config": {precision.KEY: value}}
    return PassContext(opt_level=3, **others, **config)


def network():
    """A convolution for Winograd's tiles, one for Strassen's product, and a dense layer."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (1, 64, 14, 14)).astype("float32")
    w3 = rng.uniform(-1, 1, (512, 64, 3, 3)).astype("float32")
    w1 = rng.uniform(-1, 1, (512, 512, 1, 1)).astype("float32")
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType(x.shape, "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(data, relax.const(w3), padding=(1, 1, 1, 1)))
            out = builder.emit_output(relax.op.nn.conv2d(y, relax.const(w1)))
        builder.emit_func_output(out)
    padded = np.pad(x.astype("float64"), [(0, 0), (0, 0), (1, 1), (1, 1)])
    patches = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    y = np.einsum("nchwij,ocij->nohw", patches, w3.astype("float64"), optimize=True)
    return builder.get(), x, np.einsum("nchw,oc->nohw", y, w1[:, :, 0, 0], optimize=True)


def algorithms(library):
    return [k.algorithm for k in library.report.kernels if k.operators == ["nn.conv2d"]]


def test_each_precision_has_its_algorithms_and_a_library_of_its_own():
    mod, x, expected = network()
    for value, names in (
        (None, ["winograd F(4x4,3x3)", "direct"]),
        ("strict", ["direct", "direct"]),
        ("fast", ["winograd F(4x4,3x3)", "strassen"]),
        ("default", ["winograd F(4x4,3x3)", "direct"]),
    ):
        with context(value):
            library = relay.build(mod, TARGET)
        assert algorithms(library) == names
        assert library.report.precision == value or value is None
        executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
        executor.run(x=x)
        assert np.abs(executor.get_output(0).numpy() - expected).max() < 2e-5 * expected.max()
        read = Report.from_json(json.loads(json.dumps(library.report.to_json())))
        assert [k.algorithm for k in read.kernels] == [k.algorithm for k in library.report.kernels]
        assert names[0] in str(library.report)
        assert f"precision: {value or 'default'}" in str(library.report)
        for algorithm, where in (("winograd", "of a tile"), ("strassen", "of two rows")):
            is_used = any(algorithm in name for name in names)
            assert (
                f"1 kernel relative to the largest value {where}" in str(library.report)
            ) == is_used


def test_strict_wins_against_a_pass_that_is_required():
    with context("strict", required_pass=["Strassen", "Winograd"]):
        names = pass_flags.disabled_implementations()
    assert set(names) == {n for each in pass_flags.IMPLEMENTATIONS.values() for n in each}


def test_a_value_that_is_none_of_them_is_an_error_that_names_all():
    for value in ("exact", 1, None):
        with pytest.raises(
            BuildError, match="'bf16', 'default', 'f16', 'f32', 'fast', 'strict', 'tf32'"
        ):
            PassContext(config={precision.KEY: value})


@pytest.mark.parametrize("value", precision.PRECISIONS)
def test_a_context_is_of_the_precision_that_it_was_made_with(value):
    assert precision.of_context(context(value)) == value


def test_other_keys_and_disabled_passes_stay():
    made = context("strict", disabled_pass=["FastMath"])
    assert set(made.disabled_pass) == {"FastMath", "Winograd", "Strassen", "RoundRows"}
    made = PassContext(
        config={precision.KEY: "strict", "tirx.disable_assert": True}, disabled_pass=("FastMath",)
    )
    assert dict(made.config) == {"tirx.disable_assert": True}
    with pytest.raises(AttributeError, match="Invalid config option"):
        PassContext(config={"baton.precison": "strict"})


def test_under_old_names_tvms_own_context_takes_the_key():
    code = (
        "import compiler.legacy; compiler.legacy.install(); import tvm\n"
        "context = tvm.transform.PassContext(config={'baton.precision': 'strict'})\n"
        "assert list(context.disabled_pass) == ['Winograd', 'Strassen', 'RoundRows']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- records -----------------------------------------------------------------------------


def recorded_layer():
    """A convolution, and the arguments and config of a record that computes it by Winograd."""
    weight = np.random.default_rng(1).uniform(-1, 1, (32, 32, 3, 3)).astype("float32")
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((1, 32, 12, 12), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            conv = relax.op.nn.conv2d(data, relax.const(weight), padding=(1, 1, 1, 1))
            out = builder.emit_output(builder.normalize(conv))
        builder.emit_func_output(out)
    w = Conv2dWorkload(
        *(1, 32, 12, 12, 32, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)), constant_weight=True
    )
    target = parse(TARGET)
    impl = next(i for i in strategy.registered("nn.conv2d", target) if i.name == winograd.NAME)
    return builder.get(), w.autotvm_args(), impl.fallback(w, target)


def test_strict_builds_pass_over_records_of_winograd_and_say_so():
    mod, args, config = recorded_layer()
    task = LoggedTask(winograd.NAME, args)
    inp = MeasureInput(parse(TARGET), task, config)
    with autotvm.apply_history_best([(inp, MeasureResult((1e-9,), 0, 0.0, 0.0))]):
        with context():
            library = relay.build(mod, TARGET)
        with context("strict"):
            strict = relay.build(mod, TARGET)
    assert algorithms(library)[0].startswith("winograd") and not library.report.notes
    assert algorithms(strict) == ["direct"]
    (note,) = strict.report.notes
    assert note.endswith(f"not used, {winograd.NAME} is disabled")


def test_strict_builds_pass_over_templates_of_auto_scheduler_records(tmp_path):
    mod, args, config = recorded_layer()
    (task,), _ = auto_scheduler.extract_tasks(mod, {}, TARGET)
    template = Template(winograd.NAME, args, config.to_entity())
    log = tmp_path / "log.json"
    save_records(
        log, [Record(task.workload_key, {"kind": "llvm"}, [[], []], (1e-9,), 0, template=template)]
    )
    with auto_scheduler.ApplyHistoryBest(log):
        with context():
            library = relay.build(mod, TARGET)
        with context("strict"):
            strict = relay.build(mod, TARGET)
    source = "auto_scheduler:log.json:1"
    assert [k.source for k in library.report.kernels if "nn.conv2d" in k.operators] == [source]
    assert algorithms(library)[0].startswith("winograd")
    assert algorithms(strict) == ["direct"]
    assert f"{source}: not used, {winograd.NAME} is disabled" in strict.report.notes
