"""Searching for schedules: for real, and as small as it gets."""

from __future__ import annotations

import importlib.util
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import te

from compiler import auto_scheduler, relay
from compiler.auto_scheduler import extract_tasks, load_records
from compiler.auto_scheduler.search.callbacks import LogEstimatedLatency
from compiler.auto_scheduler.search.scheduler import TaskScheduler
from compiler.auto_scheduler.task import SearchTask
from compiler.errors import RecordError
from compiler.records.auto_scheduler.record import Record, load_best_record, replay
from compiler.records.auto_scheduler.workload import canonical, workload_key
from compiler.runtime import graph_executor
from tests.compiler.auto_scheduler.networks import dense_module
from tests.compiler.auto_scheduler.small import CPU, matmul, needs_tune

# A few samples of a small space are enough here.
SMALL = {
    "evolutionary_search_population": 4,
    "evolutionary_search_num_iters": 1,
    "sample_init_min_population": 2,
}


auto_scheduler.register_workload("test_tuning.matmul", matmul, override=True)


def options(log, trials, **more):
    return auto_scheduler.TuningOptions(
        trials,
        num_measures_per_round=2,
        verbose=0,
        runner=auto_scheduler.LocalRunner(timeout=60, number=1, min_repeat_ms=0),
        builder=auto_scheduler.LocalBuilder(timeout=60),
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
        **more,
    )


def test_a_registered_workload_is_a_task_by_name_by_function_and_by_key():
    key = auto_scheduler.make_workload_key("test_tuning.matmul", (4, 8, 16))
    assert key == '["test_tuning.matmul", 4, 8, 16]'
    by_name = SearchTask("test_tuning.matmul", (4, 8, 16), target=CPU)
    by_key = SearchTask(workload_key=key, target=CPU)
    assert by_name.workload_key == by_key.workload_key == workload_key(by_name.func)
    assert by_name.flop_ct == by_name.compute_dag.flop_ct == 2 * 4 * 8 * 16
    assert "T.grid(4, 8, 16)" in str(by_name.compute_dag)


def test_workloads_that_are_unknown_or_registered_twice_are_refused():
    with pytest.raises(RecordError, match="not registered"):
        SearchTask("test_tuning.nothing", (1,), target=CPU)
    with pytest.raises(RecordError, match="registered already"):
        auto_scheduler.register_workload("test_tuning.matmul", matmul)
    with pytest.raises(RecordError, match="function with its arguments"):
        SearchTask(target=CPU)


@needs_tune
def test_a_tuned_task_leaves_replayable_records_and_goes_on_where_it_stopped(tmp_path):
    log = tmp_path / "tuned.json"
    task = SearchTask("test_tuning.matmul", (4, 8, 16), target=CPU)
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel(), SMALL, seed=3)
    task.tune(options(log, 2), policy)
    first = load_records(log, strict=True)
    assert len(first) == 2 and all(record.cost < math.inf for record in first)
    assert workload_key(first[0].unscheduled()) == task.workload_key
    assert first[1].tir is None

    again = auto_scheduler.SketchPolicy(
        task,
        auto_scheduler.RandomModel(),
        SMALL,
        seed=3,
        init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(log)],
    )
    task.tune(options(log, 4), again)
    records = load_records(log, strict=True)
    modules = {str(replay(record, task.func, CPU)) for record in records}
    assert len(modules) == len(records) > 2

    schedule, args = task.apply_best(log)
    assert len(args) == 3
    kernel = tvm.compile(schedule.mod, CPU)
    x, w = (np.random.rand(*shape).astype("float32") for shape in ((4, 16), (16, 8)))
    out = tvm.runtime.empty((4, 8), "float32")
    kernel(tvm.runtime.tensor(x), tvm.runtime.tensor(w), out)
    np.testing.assert_allclose(out.numpy(), x @ w, rtol=1e-5)
    assert "sample_perfect_tile" in task.print_best(log)


def measured_before_each_round(monkeypatch, log, trials, most):
    """Records in the log at each round of three tasks, in a search that is over after `most`."""
    shapes = [(8, 8, 8), (8, 16, 8), (16, 8, 8)]
    tasks = [SearchTask("test_tuning.matmul", shape, target=CPU) for shape in shapes]
    monkeypatch.setattr(TaskScheduler, "_is_over", property(lambda tuner: tuner.ct >= most))
    option = options(log, trials)
    logged, build = [], option.builder.build

    def noting(candidates):
        logged.append(len(load_records(log)) if log.exists() else 0)
        return build(candidates)

    option.builder.build = noting
    TaskScheduler(tasks, callbacks=[]).tune(option, "sketch.random", SMALL)
    return logged


@needs_tune
def test_what_was_measured_is_in_the_log_before_the_next_task_is_built(tmp_path, monkeypatch):
    log = tmp_path / "tuned.json"
    logged = measured_before_each_round(monkeypatch, log, 10, math.inf)
    assert logged[0] == 0 and len(logged) >= 5
    assert all(a < b for a, b in itertools.pairwise([*logged, len(load_records(log))]))


@needs_tune
@pytest.mark.parametrize("most", [2, 8])
def test_a_search_that_is_over_leaves_all_tasks_alone(tmp_path, monkeypatch, most):
    """In the first round of the tasks, and in a later one."""
    log = tmp_path / "tuned.json"
    logged = measured_before_each_round(monkeypatch, log, 60, most)
    assert logged[0] == 0 and logged[-1] < most <= len(load_records(log)) <= most + 1


@needs_tune
def test_an_extracted_task_is_measured_untuned_first_and_the_build_keeps_what_is_faster(tmp_path):
    log, mod = tmp_path / "tuned.json", dense_module()
    tasks, weights = extract_tasks(mod, {}, CPU)
    scheduler = TaskScheduler(tasks, weights, callbacks=[LogEstimatedLatency(tmp_path / "t.tsv")])
    scheduler.tune(options(log, 2), "sketch.random", {**SMALL, "seed": 1})
    records = load_records(log, strict=True)
    assert [record.untuned for record in records] == [True, False, False]
    assert scheduler.best_costs == [min(record.cost for record in records)]
    assert scheduler.task_cts == [2]
    assert (tmp_path / "t.tsv").read_text().startswith("ElapsedTime(s)\t")

    untuned, tuned = records[0], load_best_record(log, tuned=True)
    for winner, schedule in ((untuned, "topi:"), (tuned, "auto_scheduler:")):
        ranked = [Record(**{**vars(r), "costs": (1.0,)}) for r in (untuned, tuned) if r != winner]
        with auto_scheduler.ApplyHistoryBest([winner, *ranked]):
            library = relay.build(mod, CPU)
        (kernel,) = [k for k in library.report.kernels if "nn.dense" in k.operators]
        assert kernel.source.startswith(schedule)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"strategy": "greedy"}, "gradient, round-robin"),
        ({"task_weights": [1, 2]}, "1 tasks have 2 weights"),
        ({"objective_func": max}, "objective_func"),
    ],
)
def test_arguments_of_the_scheduler_that_can_not_be_are_refused(arguments, complaint):
    task = SearchTask("test_tuning.matmul", (4, 8, 16), target=CPU)
    with pytest.raises(RecordError, match=complaint):
        TaskScheduler([task], callbacks=[], **arguments)


@needs_tune
def test_fewer_trials_than_tasks_are_refused(tmp_path):
    task = SearchTask("test_tuning.matmul", (4, 8, 16), target=CPU)
    scheduler = TaskScheduler([task, task], callbacks=[])
    with pytest.raises(RecordError, match="num_measure_trials is too small: 1 trials for 2"):
        scheduler.tune(options(tmp_path / "log.json", 1))


def test_missing_package_is_named_before_anything_starts(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "xgboost" else find(name)
    )
    task = SearchTask("test_tuning.matmul", (4, 8, 16), target=CPU)
    with pytest.raises(RecordError, match=r"xgboost.*baton-tvm\[tune\]"):
        task.tune(options(tmp_path / "log.json", 2))


def build_and_compare(mod, context):
    """The build's kernels with a product, after its numbers were compared."""
    with context:
        library = relay.build(mod, CPU)
    x = np.linspace(-1, 1, 64, dtype="float32").reshape(4, 16)
    weight = np.arange(512, dtype="float32").reshape(16, 32) / 512
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=x)
    expected = np.maximum(x @ weight, 0)
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-4, atol=1e-6)
    return [kernel for kernel in library.report.kernels if "nn.dense" in kernel.operators]


@needs_tune
def test_a_kernel_without_a_record_is_sampled_once_and_its_source_says_so(monkeypatch):
    from compiler.auto_scheduler import sampling

    drawn, draw = [], sampling.samples
    monkeypatch.setattr(
        sampling, "samples", lambda task, *more: drawn.append(task) or draw(task, *more)
    )
    context = auto_scheduler.ApplyHistoryBestOrSample(None)
    for _ in range(2):
        (kernel,) = build_and_compare(dense_module(), context)
        assert kernel.source == "auto_scheduler:<sample>:1"
    assert len(drawn) == 1
    sampled = context.query(CPU, drawn[0].workload_key)
    assert sampled.costs == () and "SamplePerfectTile" in str(sampled.trace)


@needs_tune
def test_a_record_goes_before_a_sample_and_simple_kernels_are_sampled_when_asked():
    task = SearchTask("test_tuning.matmul", (4, 8, 16), target=CPU)
    known = Record(task.workload_key, {"kind": "llvm"}, [[], []], (1.0,))
    context = auto_scheduler.ApplyHistoryBestOrSample([known])
    assert context.query(CPU, task.workload_key) is known

    x = te.placeholder((64,), name="x")
    simple = te.create_prim_func([x, te.compute((64,), lambda i: x[i] + 1, name="out")])
    assert context.sample(CPU, simple) is None
    asked = auto_scheduler.ApplyHistoryBestOrSample(None, sample_simple_workloads=True)
    assert asked.sample(CPU, simple).source == "auto_scheduler:<sample>:1"


@needs_tune
def test_the_fastest_of_the_measured_samples_is_kept(monkeypatch):
    from compiler.auto_scheduler import sampling
    from compiler.measure.candidate import MeasureErrorNo

    measured = []

    class Runner(auto_scheduler.LocalRunner):
        """Measures once; the last candidate is called the fastest, the first one failed."""

        def __init__(self, min_repeat_ms):
            super().__init__(timeout=60, number=1, min_repeat_ms=0)

        def run(self, candidates, builds):
            results = super().run(candidates, builds)
            assert all(result.is_right for result in results)
            costs = [(1.0 / (1 + index),) for index in range(len(results))]
            measured.extend(candidates)
            failed = replace(results[0], costs=(0.0,), error_no=MeasureErrorNo.RUNTIME_DEVICE)
            return [failed] + [replace(r, costs=c) for r, c in zip(results[1:], costs[1:])]

    monkeypatch.setattr(sampling, "LocalRunner", Runner)
    context = auto_scheduler.ApplyHistoryBestOrSample(None, num_measure=3)
    task = SearchTask("test_tuning.matmul", (4, 8, 16), target=CPU)
    best = context.sample(CPU, task.func)
    assert len(measured) == 3 and best.costs == (1 / 3,)
    expected = tvm.ir.load_json(measured[-1].text)["main"]
    tvm.ir.assert_structural_equal(canonical(replay(best, task.func, CPU)), canonical(expected))


def test_sampling_refuses_a_cost_model_and_names_a_missing_package(monkeypatch):
    with pytest.raises(RecordError, match="num_measure"):
        auto_scheduler.ApplyHistoryBestOrSample(None, cost_model_file="model.bin")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RecordError, match=r"psutil.*baton-tvm\[tune\]"):
        auto_scheduler.ApplyHistoryBestOrSample(None)


def test_the_first_error_of_a_search_is_kept_and_a_log_of_failures_says_how_they_failed(tmp_path):
    from tvm.s_tir import meta_schedule as ms

    from compiler.auto_scheduler.search.engine import Observer

    task = SearchTask(te.create_prim_func(matmul(8, 8, 8)), target=CPU)
    logged = []
    observer = Observer([task], lambda _, records, __: logged.extend(records))
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": canonical(task.func)}))
    candidate = ms.MeasureCandidate(schedule, ms.arg_info.ArgInfo.from_prim_func(task.func))
    strategy, built = ms.task_scheduler.RoundRobin(), ms.builder.BuilderResult("kernel.o", None)
    for message in ("7: took 1 s", "4: crashed"):
        run = ms.runner.RunnerResult(None, message)
        observer.apply(strategy, 0, [candidate], [built], [run])
    assert observer.first_errors == {0: "RUN_TIMEOUT: took 1 s"}
    log = str(tmp_path / "log.json")
    auto_scheduler.RecordToFile(log)(logged)
    with pytest.raises(RecordError, match=r"2 trials failed, the first with RUN_TIMEOUT; give"):
        task.apply_best(log)
