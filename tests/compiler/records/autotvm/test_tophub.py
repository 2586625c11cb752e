"""Shipped logs: which targets they serve, and what goes before them."""

from __future__ import annotations

import importlib.resources
import json

import numpy as np
import pytest
import tvm

from compiler import autotvm, relay
from compiler import target as targets
from compiler.autotvm import confirm, task
from compiler.records.autotvm import dispatcher, tophub
from compiler.records.log_target import log_target
from compiler.runtime import graph_executor
from schedules import strategy
from schedules.config import ConfigEntity, option
from schedules.x86.host import host_name

CPU = "llvm -mcpu=" + host_name()
CPU_LOG = CPU.partition("=")[2] + ".log"
X = np.random.default_rng(0).uniform(-1, 1, (4, 32)).astype("float32")
W = np.random.default_rng(1).uniform(-1, 1, (48, 32)).astype("float32")


def record(tile, target=CPU, cost=1e-6):
    """A line of a log for the product of X and W."""
    shapes = [["TENSOR", [4, 32], "float32"], ["TENSOR", [48, 32], "float32"]]
    knobs = [
        ["tile_y", "sp", [-1, 1, 2]],
        ["tile_x", "sp", [-1, 1, tile]],
        ["tile_k", "sp", [-1, 4]],
        ["tile_inner", "sp", [-1, 2]],
    ]
    line = {
        "input": [target, "dense_pack.x86", [*shapes, None, "float32"], {}],
        "config": {"index": 1, "code_hash": None, "entity": knobs},
        "result": [[cost], 0, 1.0, 2.0],
        "version": 0.2,
    }
    return json.dumps(line) + "\n"


def _forget():
    tophub._shipped_cpus.cache_clear()
    tophub._read.cache_clear()


@pytest.fixture
def ship(tmp_path, monkeypatch):
    """Puts a log among the shipped ones, which are no others."""
    monkeypatch.setattr(tophub, "_folder", lambda: tmp_path)
    monkeypatch.delenv("TOPHUB_LOCATION", raising=False)
    _forget()

    def put(name, *lines):
        (tmp_path / name).write_text("# how it was made\n" + "".join(lines))
        _forget()

    yield put
    _forget()


def source_of_the_product(target=CPU):
    """Where the schedule of X times W comes from; its numbers are right on this CPU."""
    x = relay.var("x", shape=X.shape)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, relay.const(W))))
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, target)
    if target == CPU:
        module = graph_executor.GraphModule(library["default"](tvm.cpu()))
        module.run(x=X)
        np.testing.assert_allclose(module.get_output(0).numpy(), X @ W.T, rtol=1e-5, atol=1e-5)
    (kernel,) = library.report.kernels
    return kernel.source


def test_a_build_takes_the_shipped_record_of_its_cpu_and_says_so(ship):
    assert source_of_the_product() == "topi:fallback"
    ship(CPU_LOG, record(16, cost=2e-6), record(8))
    assert source_of_the_product() == f"topi:{CPU_LOG}:3"


def test_a_log_of_the_user_goes_before_a_faster_shipped_record(ship, tmp_path):
    ship(CPU_LOG, record(16, cost=1e-9))
    (tmp_path / "mine").write_text(record(8, cost=1.0))
    with autotvm.apply_history_best(tmp_path / "mine"):
        assert source_of_the_product() == "topi:mine:1"
    assert source_of_the_product() == f"topi:{CPU_LOG}:2"


@pytest.mark.parametrize(
    "tuned_for",
    ["llvm -mcpu=penryn", CPU + " -mattr=+fma", "llvm", "llvm -model=some"],
)
def test_records_of_another_cpu_are_not_used_even_in_the_file_of_this_one(ship, tuned_for):
    ship("penryn.log", record(16, "llvm -mcpu=penryn"))
    ship(CPU_LOG, record(8, tuned_for))
    assert source_of_the_product() == "topi:fallback"


@pytest.mark.parametrize("other", ["llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v3 -mattr=+aes"])
def test_a_build_for_another_cpu_takes_no_shipped_record_of_this_one(ship, other):
    ship(CPU_LOG, record(8), record(8, other))
    assert source_of_the_product(other) == "topi:fallback"


@pytest.mark.parametrize(
    ("target", "cpu"),
    [
        ("llvm -mcpu=skylake-avx512", "skylake-avx512"),
        ("llvm -mcpu=znver3 -num-cores=8 -model=7313", "znver3"),
        ("llvm -mcpu=znver3 -mattr=-avx2", ""),
        ('{"kind": "llvm", "mcpu": "znver5"}', "znver5"),
        ("cuda -arch=sm_80 -mcpu=znver3", ""),
        ("llvm", ""),
    ],
)
def test_the_cpu_decides_which_log_serves_a_target(ship, target, cpu):
    if cpu:
        ship(f"{cpu}.log", record(8, f"llvm -mcpu={cpu}"))
    else:
        ship("znver3.log", record(8, "llvm -mcpu=znver3"))
    assert tophub.file_for(log_target(target)) == (f"{cpu}.log" if cpu else None)
    assert len(tophub.shipped_records(log_target(target))) == (1 if cpu else 0)


def test_shipped_logs_are_switched_off_by_the_old_variable(ship, monkeypatch):
    ship("znver4.log", record(8, "llvm -mcpu=znver4"))
    assert len(tophub.shipped_records(log_target("llvm -mcpu=znver4"))) == 1
    monkeypatch.setenv("TOPHUB_LOCATION", "NONE")
    assert len(tophub.shipped_records(log_target("llvm -mcpu=znver4"))) == 0


def test_without_a_log_for_the_cpu_no_workload_is_even_hashed(ship, monkeypatch):
    ship("penryn.log", record(8, "llvm -mcpu=penryn"))
    monkeypatch.setattr(dispatcher, "digest", lambda workload: pytest.fail("hashed"))
    assert dispatcher.DispatchContext.current.query(CPU, ("dense_pack.x86", 1)) is None


def test_tuning_competes_with_the_shipped_record(ship):
    args = (("TENSOR", (4, 32), "float32"), ("TENSOR", (48, 32), "float32"), None, "float32")
    tasks = [task.create("dense_pack.x86", args, CPU)]
    before = confirm.comparisons(tasks, [])[0].fallback
    assert before is None or before.config.source == "topi:fallback"
    ship(CPU_LOG, record(8))
    taken = confirm.comparisons(tasks, [])[0].fallback
    assert taken.config.source == f"topi:{CPU_LOG}:2"


def _logs():
    files = importlib.resources.files("tuning_logs").iterdir()
    return sorted(file.name for file in files if file.name.endswith(".log"))


@pytest.mark.parametrize("name", _logs())
def test_every_shipped_record_is_in_its_templates_space(name):
    with importlib.resources.as_file(importlib.resources.files("tuning_logs") / name) as path:
        records = list(autotvm.load_from_file(path, strict=True))
    assert records
    for inp, result in records:
        assert log_target(inp.target).cpu + ".log" == name
        made = task.create(inp.task.name, inp.task.args, str(inp.target))
        assert made.config_space.index_of(inp.config) is not None, inp.config.source
        assert result.error_no == 0


def test_the_innermost_log_goes_before_a_faster_record_of_an_outer_one(monkeypatch):
    monkeypatch.setattr(strategy, "_STRATEGIES", {})

    def implementation(name):
        return strategy.Implementation(
            name, 10, lambda w, t: True, lambda w, t: ConfigEntity(), None, lambda w: ()
        )

    for name in ("slow", "fast"):
        strategy.register("test.levels", "cpu", implementation(name))
    known = {
        "slow": ConfigEntity({"k": option(1)}, "topi:mine:1", False, 1.0, level=0),
        "fast": ConfigEntity({"k": option(2)}, "topi:shipped:1", False, 0.1, level=1),
    }
    target = targets.parse("llvm")
    chosen = strategy.select("test.levels", None, target, lambda t, w: known[w[0]])
    assert chosen is not None and chosen[0].name == "slow"
