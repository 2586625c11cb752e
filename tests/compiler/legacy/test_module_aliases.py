"""Names by the modules that once defined them, and names that are others today."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import tvm

from compiler import legacy
from compiler.errors import RecordError, TargetError
from compiler.legacy.module_map import PARTS


@pytest.fixture(autouse=True)
def old_names():
    with legacy.installed():
        yield


@pytest.mark.parametrize("name", sorted(PARTS))
def test_a_module_is_the_package_that_has_its_names_today(name):
    if name.startswith("tvm.contrib.torch"):
        pytest.importorskip("torch")
    module = importlib.import_module(name)
    assert module is importlib.import_module(PARTS[name])


@pytest.mark.parametrize(
    "statement",
    [
        "from tvm.auto_scheduler.measure_record import load_records, RecordToFile",
        "from tvm.auto_scheduler.relay_integration import extract_tasks",
        "from tvm.autotvm.measure.measure_methods import LocalRunner, request_remote",
        "from tvm.autotvm.record import ApplyHistoryBest",
        "from tvm.autotvm.task.relay_integration import extract_from_program",
        "from tvm.autotvm.task.topi_integration import register_topi_compute",
        "from tvm.autotvm.tuner.callback import log_to_file, progress_bar, Monitor",
        "from tvm.autotvm.tuner.index_based_tuner import GridSearchTuner, RandomTuner",
        "from tvm.autotvm.tuner.xgboost_tuner import XGBTuner",
        "from tvm.autotvm.utils import get_const_int, get_const_tuple",
        "from tvm.relay.backend.graph_runtime_factory import GraphExecutorFactoryModule",
        "from tvm.relax.expr import Call, Constant, PrimValue, StringImm",
        "from tvm.relax.struct_info import TensorStructInfo, TupleStructInfo",
        "from tvm.relay.build_module import Executor, Runtime",
        "from tvm.relay.expr import RelayExpr, bind",
        "from tvm.relay.op.nn.nn import conv2d, dense",
        "from tvm.relay.op.vision.nms import non_max_suppression",
        "from tvm.relay.transform.transform import FoldConstant, SimplifyInference",
        "from tvm.runtime.object import Object",
        "from tvm.runtime.packed_func import PackedFunc",
        "from tvm.te.tensor_intrin import decl_tensor_intrin",
        "from tvm.tir.analysis.analysis import verify_memory",
        "from tvm.relay.ty import is_dynamic",
        "from tvm.tir.data_layout import layout",
        "from tvm.tir.schedule import BlockRV, LoopRV",
        "from tvm.tir.transform.transform import Simplify, MergeDynamicSharedMemoryAllocations",
        "from tvm.topi.nn.util import get_pad_tuple",
        "from tvm.topi.vision.rcnn import roi_align_nchw",
    ],
)
def test_names_are_found_where_they_were_defined(statement):
    exec(statement, {})


def test_nothing_is_a_node_that_is_gone():
    from compiler.errors import LegacyImportError

    assert not isinstance(tvm.tir.const(1, "int32"), tvm.tir.Load)
    assert not isinstance(tvm.tir.Evaluate(0), (tvm.tir.Allocate, tvm.tir.Store))
    with pytest.raises(LegacyImportError, match=r"tvm\.tir\.Load is gone .*\.BufferLoad"):
        tvm.tir.Load("float32", tvm.tir.Var("p", "handle"), 0)


def test_types_of_relay_are_those_of_ir():
    from tvm import relay

    for name in ("TypeCall", "TypeVar", "GlobalTypeVar", "TypeData", "Constructor", "TypeKind"):
        assert getattr(tvm.ir, name) is getattr(relay, name)
    assert tvm.ir.RelayRefType is relay.RefType
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        tvm.ir.nonsense  # noqa: B018


def test_modules_are_attributes_of_their_packages():
    from tvm import auto_scheduler, autotvm, relay

    records = importlib.import_module("tvm.auto_scheduler.measure_record")
    assert auto_scheduler.measure_record is records
    assert auto_scheduler.relay_integration.extract_tasks is auto_scheduler.extract_tasks
    assert autotvm.measure.measure_methods.request_remote is autotvm.measure.request_remote
    assert relay.op.contrib.dnnl.partition_for_dnnl and tvm.tir.generic.floordiv
    assert not relay.ty.is_dynamic(relay.TensorType((1, 2)))
    pair = relay.TupleType([relay.TensorType((1,)), relay.TensorType((relay.Any(), 2))])
    assert relay.ty.is_dynamic(pair)


def test_types_and_functions_are_instances_of_their_old_classes():
    from tvm import relax, relay

    x = relay.var("x", shape=(2, 3))
    assert isinstance(x.checked_type, tvm.ir.TensorType)
    assert isinstance(x, tvm.ir.RelayExpr)
    tvm.register_func("test_parts.one", lambda: 1, override=True)
    assert isinstance(tvm.get_global_func("test_parts.one"), tvm.runtime.PackedFunc)
    assert tvm.runtime.String("a") == "a"
    assert isinstance(relax.PrimValue(3), relax.PrimValue) and int(relax.PrimValue(3)) == 3
    assert relax.PrimValue(0.5).ty.dtype == "float64"
    assert not isinstance(relay.nn.relu(x), relax.PrimValue)
    one = relax.const(np.ones(3), relax.TensorStructInfo((3,), "float16"))
    assert one.data.numpy().dtype == np.float16 and relax.const(2, "int8").ty.dtype == "int8"
    n = tvm.tir.SizeVar("n", "int32")
    assert tvm.arith.Analyzer().can_prove_equal(tvm.tir.add(n, 2) - 2, n)
    assert tvm.te.multiply(3, 4) == 12 and tvm.te.subtract(3, 4) == -1


def test_a_generic_function_is_that_of_the_current_target():
    @tvm.target.generic_func
    def kind():
        return "any"

    @kind.register(["cuda", "gpu"])
    def kind_on_a_gpu():
        return "gpu"

    assert kind() == "any" and kind.__name__ == "kind"
    with tvm.target.Target("llvm"):
        assert kind() == "any"
    with tvm.target.Target("cuda -arch=sm_80"):
        assert kind() == "gpu"
    with pytest.raises(TargetError, match="'cuda'"):
        kind.register("cuda", print, override=False)

    native = tvm.target.get_native_generic_func("a name of a test")
    with pytest.raises(TargetError, match="no default"):
        native()
    tvm.target.override_native_generic_func("a name of a test")(lambda: 7)
    assert native() == 7


def test_implementations_of_a_test_are_chosen_by_the_target():
    import tvm.topi.testing

    chosen = {"generic": 0, "cpu": 1, "gpu": 2}
    assert tvm.topi.testing.dispatch("llvm", chosen) == 1
    assert tvm.topi.testing.dispatch("cuda -arch=sm_80", chosen) == 2
    assert tvm.topi.testing.dispatch("llvm", {"generic": 0, "gpu": 2}) == 0


def test_tophubs_context_takes_extra_logs(tmp_path):
    from tvm import autotvm

    with autotvm.tophub.context("llvm") as found:
        assert found.query("llvm", ("nothing", 1)) is None
    with pytest.raises(RecordError):
        autotvm.tophub.context("llvm", extra_files=[tmp_path / "none.log"])
    with pytest.raises(RecordError, match="give a list"):
        autotvm.tophub.context("llvm", extra_files="a.log")


def test_progress_is_silent_where_the_script_says_so(capsys, monkeypatch):
    from tvm import autotvm
    from tvm.autotvm.env import GLOBAL_SCOPE

    class Tuner:
        best_flops = 1.0

    show = autotvm.callback.progress_bar(2)
    monkeypatch.setattr(GLOBAL_SCOPE, "silent", True)
    show(Tuner(), [None], [autotvm.MeasureResult([1.0], 1, 1.0, 0.0)])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(autotvm.GLOBAL_SCOPE, "silent", False)
    show(Tuner(), [None], [autotvm.MeasureResult([1.0], 1, 1.0, 0.0)])
    assert "2/2 trials" in capsys.readouterr().err


def test_a_tuner_of_ones_own_measures_what_it_chooses():
    from tvm import autotvm, te
    from tvm.autotvm.measure import create_measure_batch

    @autotvm.template("test_parts/scale")
    def scale(n):
        a = te.placeholder((n,), name="a")
        b = te.compute((n,), lambda i: a[i] * 2, name="b")
        s = te.create_schedule(b.op)
        cfg = autotvm.get_config()
        cfg.define_knob("factor", [4, 8])
        s[b].split(b.op.axis[0], factor=cfg["factor"].val)
        return s, [a, b]

    task = autotvm.task.create("test_parts/scale", (64,), "llvm")
    option = autotvm.measure_option(
        autotvm.LocalBuilder(), autotvm.LocalRunner(number=1, repeat=1, min_repeat_ms=0)
    )
    measure_batch = create_measure_batch(task, option)
    inputs = [autotvm.MeasureInput(task.target, task, task.config_space.get(i)) for i in (0, 1)]
    results = measure_batch(inputs)
    assert measure_batch.n_parallel >= 1
    assert [each.error_no for each in results] == [0, 0]
    assert all(np.mean(each.costs) > 0 for each in results)


def test_a_function_that_a_task_is_made_of_is_a_template():
    from tvm import autotvm, te

    def test_parts_row_sums(n):
        cfg = autotvm.get_config()
        cfg.define_knob("factor", [2, 4])
        a, k = te.placeholder((n, n), name="a"), te.reduce_axis((0, n), "k")
        b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="b")
        s = te.create_schedule(b.op)
        s[b].split(k, factor=cfg["factor"].val)
        return s, [a, b]

    task = autotvm.task.create(test_parts_row_sums, args=(16,), target="llvm")
    assert task.name == "test_parts_row_sums" and len(task.config_space) == 2
    again = autotvm.task.create(test_parts_row_sums, args=(8,), target="llvm")
    assert again.workload != task.workload
