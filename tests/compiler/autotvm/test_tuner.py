"""Tuners: what they measure, what they remember, and that a killed run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compiler import autotvm
from compiler.autotvm.task import Task
from compiler.autotvm.tuner import make_tuner
from compiler.errors import BatonError, RecordError
from compiler.measure.candidate import FAILED_COST, BuildResult, MeasureErrorNo
from compiler.records.measure_result import MeasureResult

ROOT = Path(__file__).parents[3]
TUNERS = ("random", "gridsearch", "ga", "xgb_knob", "xgb_rank_knob")
WITH_RANGES = ("random", "gridsearch")
DENSE = (("TENSOR", (64, 128), "float32"), ("TENSOR", (96, 128), "float32"), None, "float32")


class Pretended:
    """A builder and a runner that know how long each config takes: the nearer to `best`, the less.

    Every seventh config fails.
    """

    n_parallel = 4

    def __init__(self, space, best):
        self.space, self.best, self.measured = space, space.point2knob(best), []

    def build(self, candidates):
        return [BuildResult("", (), MeasureErrorNo.NO_ERROR, "", 0.0) for _ in candidates]

    def run(self, candidates, builds):
        return [self._run(candidate.config.index) for candidate in candidates]

    def _run(self, index):
        self.measured.append(index)
        if index % 7 == 3:
            return MeasureResult((FAILED_COST,), MeasureErrorNo.COMPILE_HOST, 0.1, 0.0, "no")
        far = sum(abs(a - b) for a, b in zip(self.space.point2knob(index), self.best))
        return MeasureResult((1e-4 * (1 + far),), MeasureErrorNo.NO_ERROR, 0.1, 0.0)


@pytest.fixture
def task():
    return autotvm.task.create("dense_nopack.x86", DENSE, "llvm -mcpu=skylake-avx512")


def pretend(task, best=100):
    both = Pretended(task.config_space, best)
    return both, {"builder": both, "runner": both}


@pytest.mark.parametrize("name", TUNERS)
def test_a_tuner_measures_no_config_twice_and_the_fallback_first(task, name):
    both, option = pretend(task)
    make_tuner(name, task).tune(60, option)
    assert len(both.measured) == len(set(both.measured)) == 60
    assert both.measured[0] == task.fallback.index


@pytest.mark.parametrize("name", ["ga", "xgb_knob", "xgb_rank_knob"])
def test_a_tuner_that_learns_measures_better_configs_than_chance(task, name):
    options = {"pop_size": 16} if name == "ga" else {"plan_size": 16}
    rates = {}
    for each in (name, "random"):
        both, option = pretend(task)
        tuner = make_tuner(each, task, seed=0, **(options if each == name else {}))
        monitor = autotvm.callback.Monitor()
        tuner.tune(64, option, callbacks=[monitor])
        rates[each] = monitor.trial_scores()
        assert tuner.best_flops == rates[each].max() > 0
        assert tuner.best_config.index == both.measured[int(rates[each].argmax())]
        assert tuner.best_iter == int(rates[each].argmax()) + 1
        if each.startswith("xgb"):
            assert tuner.xs == both.measured and tuner.flops_max == tuner.best_flops
            assert tuner.ys == pytest.approx(rates[each])
    assert rates[name].mean() > 1.2 * rates["random"].mean()


@pytest.mark.parametrize("name", WITH_RANGES)
def test_a_range_is_searched_to_its_end_and_nothing_else(task, name):
    both, option = pretend(task)
    tuner = make_tuner(name, task, range_idx=(10, 20))
    assert (tuner.begin_idx, tuner.end_idx, tuner.range_length) == (10, 21, 11)
    tuner.tune(100, option)
    order = both.measured if name == "gridsearch" else sorted(both.measured)
    assert order == list(range(10, 21)) and not tuner.has_next()


def test_a_droplet_runs_down_to_the_best_config(task):
    best = task.config_space.range_length // 2 + 7
    both, option = pretend(task, best=best - best % 7)
    tuner = make_tuner("droplet", task)
    tuner.tune(600, option)
    assert len(both.measured) == len(set(both.measured))
    near = [a - b for a, b in zip(tuner.best_choice[1], both.best)]
    assert sum(map(abs, near)) <= 1  # some configs next to the best one fail


def test_a_generation_is_visited_from_its_start(task):
    tuner = make_tuner("ga", task, pop_size=16)
    assert tuner.pop_size == len(tuner.genes) == len(tuner.visited) == 16
    assert {tuner.space.knob2point(gene) for gene in tuner.genes} == tuner.visited


def test_a_runner_of_ones_own_gets_tasks_targets_and_configs(task):
    class Own(autotvm.measure.Runner):
        def run(self, measure_inputs, build_results):
            assert all(each.task is self.task is task for each in measure_inputs)
            assert all(each.target == task.target for each in measure_inputs)
            return [autotvm.MeasureResult((1e-3,), 0, 0.1, 0.0) for _ in measure_inputs]

    builder, _ = pretend(task)
    tuner = make_tuner("random", task)
    tuner.tune(4, autotvm.measure_option(builder, Own(1, 1)))
    assert tuner.best_flops == pytest.approx(task.flop / 1e-3)


def test_the_log_says_why_candidates_fail(task, caplog):
    class Failing(autotvm.measure.Runner):
        def run(self, measure_inputs, build_results):
            return [autotvm.MeasureResult((1e9,), 4, 0.1, 0.0, "no such device")] * 2

    builder, _ = pretend(task)
    with caplog.at_level("DEBUG", "baton.autotvm"):
        make_tuner("random", task).tune(2, autotvm.measure_option(builder, Failing(1, 1)))
    (trials, *_) = [each.getMessage() for each in caplog.records if "best" in each.getMessage()]
    assert trials.endswith("; no such device")


def test_a_space_that_is_exhausted_ends_the_run():
    args = (("TENSOR", (1, 3), "float32"), ("TENSOR", (2, 3), "float32"), None, "float32")
    small = autotvm.task.create("dense_nopack.x86", args, "llvm")
    both, option = pretend(small, best=0)
    for name in TUNERS:
        both.measured.clear()
        make_tuner(name, small).tune(100, option)
        assert sorted(both.measured) == list(range(len(small.config_space))), name


def test_tuning_stops_when_nothing_gets_better(task):
    both, option = pretend(task, best=task.fallback.index)
    make_tuner("random", task, seed=1).tune(200, option, early_stopping=20)
    assert len(both.measured) < 60


def test_a_history_is_not_measured_again_and_holds_the_best(task, tmp_path):
    log = tmp_path / "tuned.log"
    both, option = pretend(task)
    first = make_tuner("random", task, seed=0)
    first.tune(24, option, callbacks=[autotvm.callback.log_to_file(log)])
    for name in ("random", "ga", "xgb_knob"):
        second = make_tuner(name, task)
        second.load_history(autotvm.load_from_file(log))
        assert second.best_flops == pytest.approx(first.best_flops)
        assert second.best_config.to_entity() == first.best_config.to_entity()
        again, option = pretend(task)
        second.tune(24, option)
        assert not set(again.measured) & set(both.measured), name


def test_another_workloads_history_says_nothing_about_this_one(task, tmp_path):
    log = tmp_path / "tuned.log"
    _, option = pretend(task)
    make_tuner("random", task).tune(8, option, callbacks=[autotvm.callback.log_to_file(log)])
    args = (DENSE[0], ("TENSOR", (32, 128), "float32"), None, "float32")
    other = make_tuner("random", autotvm.task.create("dense_nopack.x86", args, "llvm"))
    other.load_history(autotvm.load_from_file(log))
    assert not other.visited and other.best_config is None


@pytest.mark.parametrize("feature", ["itervar", "curve"])
def test_loops_of_configs_are_features(task, feature):
    from compiler.autotvm.tuner import features

    made = getattr(features, f"{feature}_features")
    rows = [made(task, task.config_space.get(index)) for index in (0, 100, 400)]
    assert len({row.shape for row in rows}) == 1
    assert len({row.tobytes() for row in rows}) == 3


def test_the_features_see_tiles_as_extents(task):
    from compiler.autotvm.tuner.features import loops_of

    config = task.config_space.get(100)
    extents = {loop.extent for loop in loops_of(task, config)}
    tiles = {config.size(f"tile_{axis}")[-1] for axis in "yxk"}
    assert tiles <= extents | {1}


def test_a_model_of_loops_learns_from_other_tasks(task):
    _, option = pretend(task)
    teacher = make_tuner("random", task, seed=0)
    pairs = []
    teacher.tune(12, option, callbacks=[lambda _, i, r: pairs.extend(zip(i, r))])
    args = (DENSE[0], ("TENSOR", (32, 128), "float32"), None, "float32")
    pupil = make_tuner("xgb_itervar", autotvm.task.create("dense_nopack.x86", args, "llvm"), seed=0)
    pupil.load_history(pairs, min_seed_records=1000)
    assert pupil._transferred is None
    pupil.load_history(pairs, min_seed_records=10)
    assert pupil._transferred[0].shape[0] == 12


def test_unknown_tuners_are_refused(task):
    for name in ("raindrop", "xgb_color", "xgb_rank_binary_knob_more"):
        with pytest.raises(BatonError, match=name):
            make_tuner(name, task)


def test_every_template_of_the_library_is_measured_and_right(tmp_path):
    """Real builds and runs, checked against numpy in double precision."""
    conv = (
        ("TENSOR", (1, 16, 9, 9), "float32"), ("TENSOR", (32, 16, 3, 3), "float32"),
        (1, 1), (1, 1, 1, 1), (1, 1), "NCHW", "NCHW", "float32",
    )  # fmt: skip
    deep = (conv[0], ("TENSOR", (16, 1, 3, 3), "float32"), *conv[2:])
    stack = (
        ("TENSOR", (2, 8, 16), "float32"), ("TENSOR", (2, 12, 16), "float32"),
        (2, 8, 12), "float32", False, True,
    )  # fmt: skip
    stored = (stack[0], ("TENSOR", (2, 16, 12), "float32"), (0, 1, 2), (0, 1, 2), "float32")
    tasks = [
        ("conv2d_NCHWc.x86", conv), ("conv2d_direct.x86", conv), ("conv2d_winograd.x86", conv),
        ("depthwise_conv2d_NCHWc.x86", deep), ("depthwise_conv2d_direct.x86", deep),
        ("dense_pack.x86", DENSE), ("dense_packed.x86", DENSE), ("batch_matmul.x86", stack),
        ("batch_matmul_tiled.x86", stored),
    ]  # fmt: skip
    builder = autotvm.LocalBuilder(timeout=60, n_parallel=1)
    runner = autotvm.LocalRunner(
        timeout=60, number=1, repeat=1, cooldown_interval=0, check_correctness=True
    )
    log = tmp_path / "tuned.log"
    for name, args in tasks:
        try:
            task = autotvm.task.create(name, args, "llvm")
        except RecordError:
            assert "winograd" in name  # not worth while on this CPU
            continue
        make_tuner("random", task, seed=0).tune(
            2,
            autotvm.measure_option(builder, runner),
            callbacks=[autotvm.callback.log_to_file(log)],
        )
    builder.close()
    runner.close()
    records = list(autotvm.load_from_file(log))
    assert len(records) >= 16
    assert [result.error_no for _, result in records] == [0] * len(records)


SCRIPT = """
import sys
sys.path[:0] = [{root!r}, {templates!r}]
from templates import register
from compiler import autotvm
from compiler.autotvm.tuner import make_tuner
register()
if __name__ == "__main__":
    task = autotvm.task.create("test.split_sum", (2 * 3 * 5 * 7 * 4,), "llvm")
    tuner = make_tuner("random", task)
    import os
    if os.path.exists({log!r}):
        tuner.load_history(autotvm.load_from_file({log!r}))
    option = autotvm.measure_option(
        autotvm.LocalBuilder(timeout=60, n_parallel=1),
        autotvm.LocalRunner(timeout=60, number=1, repeat=1, cooldown_interval=0))
    tuner.tune(6 - len(tuner.visited), option, callbacks=[autotvm.callback.log_to_file({log!r})])
"""


def test_a_run_that_is_killed_goes_on_without_measuring_a_config_twice(tmp_path):
    log = tmp_path / "tuned.log"
    templates = Path(__file__).parents[1] / "measure"
    script = tmp_path / "tune.py"
    script.write_text(SCRIPT.format(root=str(ROOT), templates=str(templates), log=str(log)))
    for wanted in (1, 3):
        process = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while _lines(log) < wanted and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert _lines(log) >= wanted
    with log.open("a") as file:
        file.write('{"input": ["llvm", "tes')  # as if a write had been cut off
    subprocess.run([sys.executable, str(script)], check=True, timeout=240)
    rows = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    configs = [json.dumps(row["config"]["entity"]) for row in rows]
    assert len(configs) == len(set(configs)) == 6
    assert all(row["result"][1] == 0 for row in rows)


def _lines(log):
    return log.read_bytes().count(b"\n") if log.exists() else 0


def test_a_task_stands_for_its_workload_in_records(task):
    assert task.workload == ("dense_nopack.x86", *DENSE)
    assert isinstance(task, Task) and task.kwargs == {}
    assert task.flop == 2 * 64 * 96 * 128


@pytest.mark.parametrize(
    ("costs", "is_faster"),
    [
        ((0.9, 0.9, 0.9), True),
        ((1.1, 1.1, 1.1), False),
        ((0.5, 1.4, 0.98), False),  # as like as not by chance
        ((0.99,), True),
    ],
)
def test_a_droplet_moves_where_repeats_agree(task, costs, is_faster):
    tuner = make_tuner("droplet", task)
    tuner.best_choice = (0, [0], (1.0, 1.01, 0.99))
    assert tuner._is_faster(costs) is is_faster
