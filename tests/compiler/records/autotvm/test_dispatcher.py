"""Dispatch contexts of AutoTVM: matching, nesting, threads, exceptions."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
import tvm
from tvm.target import Target

from compiler import autotvm
from compiler.errors import RecordError
from compiler.records.autotvm.dispatcher import ApplyHistoryBest, DispatchContext, FallbackContext
from compiler.records.autotvm.record import load_from_file
from schedules import strategy
from schedules.config import ConfigEntity, option

DATA = Path(__file__).parent / "data"
TOPHUB = Path(__file__).parents[4] / "shared" / "logs" / "tophub"
CPU = Target("llvm")
WORKLOAD = ("dense_nopack.x86", ("TENSOR", (1, 8), "float32"), ("TENSOR", (4, 8), "float32"))


def line(cost, tile, target="llvm", workload=WORKLOAD, error=0):
    """One log line whose only knob tells it apart."""
    return json.dumps(
        {
            "input": [target, workload[0], list(workload[1:]), {}],
            "config": {"index": 0, "code_hash": None, "entity": [["tile", "ot", tile]]},
            "result": [[cost], error, 1.0, 2.0],
            "version": 0.2,
            "tvm_version": "0.18.0",
        }
    )


@pytest.fixture
def write(tmp_path):
    def _write(*lines, name="a.log"):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return path

    return _write


def tile(config):
    return config.val("tile")


EXPECTED = json.loads((DATA / "formats/expected.json").read_text())


@pytest.mark.parametrize("name", [n for n, e in EXPECTED.items() if e["outcome"] == "ok"])
def test_file_readable_by_tvm_0_18_gives_the_same_best_configs(name):
    context = ApplyHistoryBest(DATA / "formats" / name)
    best = {}
    for inp, _ in load_from_file(DATA / "formats" / name):
        if inp.task.args[1][1] == (64, 3, 7, 7):
            continue  # the line of version 0.1, which TVM 0.18 did not take
        config = context.query(inp.target, inp.task.workload)
        if config is not None:
            best[inp.task.workload] = (inp.task.name, config)
    got = sorted(
        (task, round(config.cost, 12), json.dumps({n: str(v) for n, _, v in config.to_entity()}))
        for task, config in best.values()
    )
    assert got == sorted(
        (e["task"], round(float(e["mean_cost"]), 12), json.dumps(e["entities"]))
        for e in EXPECTED[name]["best"]
    )


def test_best_of_a_real_log_is_what_pick_best_of_tvm_0_18_picked():
    context = ApplyHistoryBest(DATA / "mlp_1x28x28_skylake.log")
    picked = list(load_from_file(DATA / "mlp_1x28x28_skylake.best.log"))
    assert len(picked) == 6
    for inp, _ in picked:
        config = context.query(CPU, inp.task.workload)
        assert config.knobs == inp.config.knobs
        assert config.cost == inp.config.cost
        assert not config.is_fallback


def test_source_names_log_and_line():
    context = ApplyHistoryBest(DATA / "resnet18_nchw_64_q.best.log")
    for number, (inp, _) in enumerate(load_from_file(DATA / "resnet18_nchw_64_q.best.log"), 1):
        config = context.query(CPU, inp.task.workload)
        assert config.source == f"topi:resnet18_nchw_64_q.best.log:{number}"


def test_failed_records_are_never_used(write):
    context = ApplyHistoryBest(write(line(1e-9, 1, error=4), line(1e-3, 2)))
    assert tile(context.query(CPU, WORKLOAD)) == 2
    assert ApplyHistoryBest(write(line(1e9, 1, error=6))).query(CPU, WORKLOAD) is None


def test_lower_mean_cost_wins_and_the_first_of_equal_ones(write):
    log = write(line(2e-3, 1), line(1e-3, 2), line(1e-3, 3), line(5e-3, 4))
    assert tile(ApplyHistoryBest(log).query(CPU, WORKLOAD)) == 2


def test_model_of_the_target_goes_before_a_cheaper_record_of_another(write):
    log = write(line(1e-6, 1, "llvm -model=fast"), line(1e-3, 2, "llvm -model=mine"))
    context = ApplyHistoryBest(log)
    mine = Target({"kind": "llvm", "model": "mine"})
    assert tile(context.query(mine, WORKLOAD)) == 2
    assert tile(context.query(CPU, WORKLOAD)) == 1
    assert tile(context.query("llvm -model=neither", WORKLOAD)) == 1


def test_keys_are_tried_in_the_order_of_the_build_target(write):
    log = write(line(1e-6, 1, "llvm"), line(1e-3, 2, "llvm -device=arm_cpu"))
    context = ApplyHistoryBest(log)
    assert tile(context.query(Target({"kind": "llvm", "keys": ["arm_cpu", "cpu"]}), WORKLOAD)) == 2
    assert context.query(Target("cuda"), WORKLOAD) is None


def test_workloads_compare_by_value_whatever_their_spelling(write):
    context = ApplyHistoryBest(write(line(1e-3, 7)))
    shape = tvm.runtime.convert([tvm.tirx.IntImm("int64", 1), 8])
    as_list = [WORKLOAD[0], ["TENSOR", shape, tvm.DataType("float32")], list(WORKLOAD[2])]
    assert tile(context.query(CPU, as_list)) == 7
    tensors = [tvm.te.placeholder((1, 8)), tvm.te.placeholder((4, 8))]
    assert tile(context.query(CPU, (WORKLOAD[0], *tensors))) == 7
    other = (WORKLOAD[0], ("TENSOR", (1, 8), "float16"), WORKLOAD[2])
    assert context.query(CPU, other) is None


def test_true_and_one_are_the_same_argument(write):
    flag = (*WORKLOAD, True, False, 1.0)
    context = ApplyHistoryBest(write(line(1e-3, 7, workload=flag)))
    assert tile(context.query(CPU, (*WORKLOAD, 1, 0, 1))) == 7


def test_inner_context_goes_first_and_the_outer_one_fills_in(write):
    other = ("dense_pack.x86", *WORKLOAD[1:])
    inner_log = write(line(1e-3, 1), name="inner.log")
    outer_log = write(line(1e-6, 2), line(1e-6, 3, workload=other), name="outer.log")
    with autotvm.apply_history_best(outer_log), autotvm.apply_history_best(inner_log):
        current = DispatchContext.current
        assert tile(current.query(CPU, WORKLOAD)) == 1
        assert tile(current.query(CPU, other)) == 3
        with FallbackContext():
            assert DispatchContext.current.query(CPU, WORKLOAD) is None
    assert isinstance(DispatchContext.current, FallbackContext)
    assert DispatchContext.current.query(CPU, WORKLOAD) is None


def test_one_context_may_be_entered_twice(write):
    context = ApplyHistoryBest(write(line(1e-3, 1)))
    with context:
        with context:
            assert DispatchContext.current is context
        assert DispatchContext.current is context
    assert DispatchContext.current is not context


def test_exception_restores_the_outer_context(write):
    with ApplyHistoryBest(write(line(1e-3, 1))) as outer:
        with pytest.raises(ZeroDivisionError), ApplyHistoryBest([]):
            raise ZeroDivisionError
        assert DispatchContext.current is outer


def test_contexts_are_not_seen_by_other_threads(write):
    context = ApplyHistoryBest(write(line(1e-3, 1)))
    seen = {}

    def other(name, enter):
        if enter:
            with context:
                barrier.wait()
                seen[name] = DispatchContext.current
                barrier.wait()
        else:
            barrier.wait()
            seen[name] = DispatchContext.current
            barrier.wait()

    barrier = threading.Barrier(2)
    with ApplyHistoryBest([]):
        threads = [threading.Thread(target=other, args=(n, n == "in")) for n in ("in", "out")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen["in"] is context
    assert isinstance(seen["out"], FallbackContext)


def test_records_may_be_several_files_or_pairs(write):
    first, second = write(line(2e-3, 1), name="1.log"), write(line(1e-3, 2), name="2.log")
    both = ApplyHistoryBest([first, second])
    assert both.query(CPU, WORKLOAD).source == "topi:2.log:1"
    pairs = ApplyHistoryBest([*load_from_file(first), *load_from_file(second)])
    assert pairs.query(CPU, WORKLOAD).source == "topi:2.log:1"
    with pytest.raises(RecordError, match="records has a int"):
        ApplyHistoryBest([3])


def test_records_may_be_an_open_file_and_nested(write):
    first, second = write(line(2.0, "a")), write(line(1.0, "b"), name="b.log")
    with open(second) as file:
        assert tile(ApplyHistoryBest(file).query("llvm", WORKLOAD)) == "b"
    pairs = iter(list(load_from_file(first)))
    assert tile(ApplyHistoryBest(zip([pairs, second])).query("llvm", WORKLOAD)) == "b"
    with pytest.raises(RecordError, match="int"):
        ApplyHistoryBest([3])


def test_an_input_unpacks_into_target_task_and_config(write):
    ((inp, _),) = load_from_file(write(line(2.0, "a")))
    target, task, config = inp
    assert (target, task, config) == (inp.target, inp.task, inp.config) and inp[2] is config


def test_a_config_that_is_found_knows_its_place_in_the_space(write):
    path = write(line(2.0, "a").replace('"index": 0', '"index": 17'))
    for records in (path, list(load_from_file(path))):
        config = ApplyHistoryBest(records).query("llvm", WORKLOAD)
        assert config.index == 17 and str(config) == "[('tile', a)],None,17"


def test_unknown_file_is_a_record_error(tmp_path):
    with pytest.raises(RecordError, match=r"none\.log.*can't be read"):
        autotvm.apply_history_best(tmp_path / "none.log")


def test_config_set_by_hand_goes_before_every_record(write):
    context = ApplyHistoryBest(write(line(1e-9, 1, "llvm -model=m")))
    context.update("llvm -model=m", WORKLOAD, ConfigEntity({"tile": option(5)}))
    assert tile(context.query("llvm -model=m", WORKLOAD)) == 5
    assert tile(context.query(CPU, WORKLOAD)) == 5


def test_hundred_thousand_lines_open_quickly_and_find_the_best(write):
    log = write(*(line(1 + i, i) for i in range(100_000)), line(0.5, -1))
    assert tile(ApplyHistoryBest(log).query(CPU, WORKLOAD)) == -1


@pytest.mark.skipif(not TOPHUB.is_dir(), reason="published TopHub logs are not beside the clone")
@pytest.mark.parametrize(
    ("name", "records", "target"),
    [
        ("llvm_v0.04.log", 35, "llvm -mcpu=skylake-avx512"),
        ("cuda_v0.10.log", 825, "cuda -model=v100"),
        ("arm_cpu_v0.08.log", 1164, "llvm -device=arm_cpu -model=rk3399"),
    ],
)
def test_published_log_reads_in_full_and_each_workload_is_found(name, records, target):
    pairs = list(load_from_file(TOPHUB / name, strict=True))
    assert len(pairs) == records
    context = ApplyHistoryBest(TOPHUB / name)
    for inp, _ in pairs:
        config = context.query(target, inp.task.workload)
        assert config is not None
        of_model = [p for p, _ in pairs if p.task == inp.task and p.target.model in target]
        if of_model and "-model" in target:
            assert config.cost == min(p.config.cost for p in of_model)


def test_the_innermost_log_goes_before_a_faster_record_of_an_outer_one(monkeypatch):
    monkeypatch.setattr(strategy, "_STRATEGIES", {})

    fields = 10, lambda w, t: True, lambda w, t: ConfigEntity(), None, lambda w: ()
    for name in ("slow", "fast"):
        strategy.register("test.levels", "cpu", name, *fields)
    known = {
        "slow": ConfigEntity({"k": option(1)}, "topi:mine:1", False, 1.0, level=0),
        "fast": ConfigEntity({"k": option(2)}, "topi:other:1", False, 0.1, level=1),
    }
    target = CPU
    chosen = strategy.select("test.levels", None, target, lambda t, w: known[w[0]])
    assert chosen is not None and chosen[0].name == "slow"


def test_a_log_is_named_by_bytes_and_none_has_no_records(write):
    path = write(line(1.0, 1))
    assert tile(ApplyHistoryBest(os.fsencode(path)).query(CPU, WORKLOAD)) == 1
    assert ApplyHistoryBest(None).query(CPU, WORKLOAD) is None
