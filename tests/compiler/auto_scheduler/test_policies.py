"""Searches, cost models and measurers, as scripts use and inherit Ansor's."""

from __future__ import annotations

import pytest
from tvm import te

from compiler import auto_scheduler
from compiler.auto_scheduler import MeasureInput, SearchTask, load_records
from compiler.errors import RecordError
from tests.compiler.auto_scheduler.small import CPU, matmul, needs_tune

SMALL = {
    "evolutionary_search_population": 4,
    "evolutionary_search_num_iters": 1,
    "sample_init_min_population": 4,
}


auto_scheduler.register_workload("test_policies.matmul", matmul, override=True)


@pytest.fixture
def task():
    return SearchTask("test_policies.matmul", (8, 8, 16), target=CPU)


def measurer(*callbacks, **more):
    return auto_scheduler.ProgramMeasurer(
        auto_scheduler.LocalBuilder(timeout=60),
        auto_scheduler.LocalRunner(timeout=60, number=1, min_repeat_ms=0),
        callbacks,
        **more,
    )


def options(log, trials, *callbacks):
    with_log = [auto_scheduler.RecordToFile(log), *callbacks]
    own = measurer(*with_log).options
    return auto_scheduler.TuningOptions(
        trials, num_measures_per_round=2, verbose=0, builder=own.builder, runner=own.runner,
        measure_callbacks=with_log,
    )  # fmt: skip


def tiled(task, factor):
    """A state made by hand."""
    dag = task.compute_dag
    state = dag.get_init_state()
    out = dag.tensors[-1]
    state.split(out, state[out].iters[0], [factor])
    return state


def impossible():
    """A state of another computation."""
    a = te.placeholder((4, 4), name="a")
    doubled = te.compute((4, 4), lambda i, j: a[i, j] * 2, name="doubled")
    again = te.compute((4, 4), lambda i, j: doubled[i, j] * 2, name="again")
    return tiled(SearchTask(compute_dag=[a, again], target=CPU), 2)


@needs_tune
def test_a_state_of_ones_own_is_measured_kept_and_read_again(task, tmp_path):
    log = tmp_path / "own.json"
    inputs = [MeasureInput(task, tiled(task, factor)) for factor in (2, 4)]
    results = measurer(auto_scheduler.RecordToFile(log)).measure(inputs)
    assert [result.error_no for result in results] == [0, 0]
    assert all(min(result.costs) > 0 and result.costs[0].value > 0 for result in results)

    kept = [tuple(record) for record in load_records(log, strict=True)]
    assert [tuple(map(float, read.costs)) for _, read in kept] == [r.costs for r in results]
    again = [auto_scheduler.recover_measure_input(inp, rebuild_state=True) for inp, _ in kept]
    assert [inp.state for inp in again] == [inp.state for inp in inputs]
    assert again[0].state != again[1].state

    best = min((0, 1), key=lambda i: results[i].costs)
    schedule, _ = task.apply_best(log)
    wanted, _ = task.compute_dag.apply_steps_from_state(inputs[best].state)
    assert str(schedule.mod) == str(wanted.mod)


@needs_tune
def test_a_measurer_tells_of_what_can_not_be_built_and_gives_up_after_many(task):
    given = [MeasureInput(task, impossible())]
    patient = measurer(max_continuous_error=2)
    (result,) = patient.measure(given)
    assert result.error_no != 0 and "another ComputeDAG" in result.error_msg
    with pytest.raises(RecordError, match="2 schedules failed in a row"):
        patient.measure(given)
    assert patient.measure([]) == []


@needs_tune
def test_an_input_from_a_log_is_measured_once_it_has_its_task(task, tmp_path):
    log = tmp_path / "own.json"
    auto_scheduler.save_records(
        log,
        [MeasureInput(task, tiled(task, 4))],
        [auto_scheduler.MeasureResult((1.0,), 0, "", 0.5, 7.0)],
    )
    ((inp, read),) = map(tuple, load_records(log, strict=True))
    assert (read.costs, read.error_no, read.all_cost, read.timestamp) == ((1.0,), 0, 0.5, 7.0)
    with pytest.raises(RecordError, match="recover_measure_input"):
        measurer().measure([inp])
    (result,) = measurer().measure([auto_scheduler.recover_measure_input(inp)])
    assert result.error_no == 0


@needs_tune
def test_a_search_of_ones_own_measures_what_it_wants_and_callbacks_know_it(task, tmp_path):
    seen = []

    class Factors(auto_scheduler.SearchPolicy):
        left = (2, 4, 8)

        def continue_search_one_round(self, num_measure, measurer):
            now, self.left = self.left[:num_measure], self.left[num_measure:]
            inputs = [MeasureInput(self.search_task, tiled(task, factor)) for factor in now]
            return inputs, measurer.measure(inputs, self)

    class Seen(auto_scheduler.measure.PythonBasedMeasureCallback):
        def callback(self, policy, inputs, results):
            seen.append((policy, len(inputs)))

    log = tmp_path / "factors.json"
    policy = Factors(task)
    task.tune(options(log, 10, Seen()), policy)
    assert seen == [(policy, 2), (policy, 1)]
    assert len(load_records(log, strict=True)) == 3


@needs_tune
def test_the_empty_policy_measures_the_task_as_it_is(task, tmp_path):
    log = tmp_path / "empty.json"
    task.tune(options(log, 10), auto_scheduler.search_policy.EmptyPolicy(task))
    (record,) = load_records(log, strict=True)
    assert record.error == 0 and record.steps == ()


@needs_tune
def test_sketches_and_populations_are_schedules_of_the_task(task):
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel(), SMALL, seed=5)
    first = policy.sample_initial_population()
    assert 0 < len(first) <= 4
    assert list(map(str, policy.sample_initial_population())) != list(map(str, first))
    for state in [*policy.generate_sketches(), *first]:
        schedule, args = task.compute_dag.apply_steps_from_state(state)
        assert len(args) == 3 and "main" in str(schedule.mod)


@needs_tune
def test_a_policy_goes_round_by_round_and_measures_nothing_twice(task):
    model = auto_scheduler.XGBModel(num_warmup_sample=1, seed=1)
    policy = auto_scheduler.SketchPolicy(task, model, SMALL, seed=5)
    own = measurer()
    rounds = [policy.continue_search_one_round(2, own) for _ in range(2)]
    assert all(len(inputs) == len(results) > 0 for inputs, results in rounds)
    states = [str(inp.state) for inputs, _ in rounds for inp in inputs]
    assert len(set(states)) == len(states)


def trained(task):
    """A model that was told that small tiles are slow, and what it was told."""
    model = auto_scheduler.XGBModel(num_warmup_sample=1, seed=1)
    factors = [2] * 8 + [4] * 8
    inputs = [MeasureInput(task, tiled(task, factor)) for factor in factors]
    results = [auto_scheduler.MeasureResult((1.0 / factor,), 0) for factor in factors]
    model.update(inputs, results)
    return model, inputs, results


@needs_tune
def test_a_model_learns_and_says_what_can_not_be_scheduled(task):
    model, inputs, _ = trained(task)
    scores = model.predict(task, [inputs[0].state, impossible(), inputs[-1].state])
    assert scores[1] == -float("inf") and scores[0] < scores[2]


@needs_tune
def test_a_model_is_saved_and_read_again(task, tmp_path):
    model, inputs, _ = trained(task)
    states = [inp.state for inp in inputs]
    path = tmp_path / "model.npz"
    model.save(path)
    again = auto_scheduler.XGBModel(num_warmup_sample=1, seed=1, model_file=path)
    assert again.predict(task, states) == model.predict(task, states)
    path.write_text("[]")
    with pytest.raises(RecordError, match=r"is not one that XGBModel\.save wrote"):
        auto_scheduler.XGBModel(model_file=path)


@needs_tune
def test_a_model_learns_from_a_log(task, tmp_path):
    log = tmp_path / "log.json"
    _, inputs, results = trained(task)
    auto_scheduler.save_records(log, inputs, results)
    fresh = auto_scheduler.XGBModel(num_warmup_sample=1, seed=1)
    fresh.update_from_file(log)
    slow, fast = fresh.predict(task, [inputs[0].state, inputs[-1].state])
    assert slow < fast
    with pytest.raises(RecordError, match="n_lines=3"):
        fresh.update_from_file(log, 3)


@needs_tune
def test_a_model_of_ones_own_guides_the_search(task, tmp_path):
    class Shortest(auto_scheduler.PythonBasedModel):
        asked = learnt = 0

        def update(self, inputs, results):
            assert all(inp.task.workload_key == task.workload_key for inp in inputs)
            self.learnt += len(results)

        def predict(self, task, states):
            self.asked += len(states)
            return [-float(len(str(state))) for state in states]

    log, model = tmp_path / "own.json", Shortest()
    task.tune(options(log, 4), auto_scheduler.SketchPolicy(task, model, SMALL, seed=3))
    assert model.asked > 0 and model.learnt > 0
    assert any(record.error == 0 for record in load_records(log, strict=True))


def test_tasks_that_are_tuned_together_share_one_model(task):
    policies = [
        auto_scheduler.SketchPolicy(task, model)
        for model in (auto_scheduler.RandomModel(), auto_scheduler.XGBModel())
    ]
    scheduler = auto_scheduler.TaskScheduler([task, task], callbacks=[])
    with pytest.raises(RecordError, match="share one cost model"):
        scheduler.tune(auto_scheduler.TuningOptions(4), policies)
    with pytest.raises(RecordError, match="one SketchPolicy for each of the 2 tasks"):
        scheduler.tune(auto_scheduler.TuningOptions(4), policies[:1])


def test_random_scores_are_within_zero_and_one(task):
    scores = auto_scheduler.RandomModel().predict(task, [tiled(task, 2)] * 5)
    assert len(set(scores)) == 5 and min(scores) >= 0 and max(scores) <= 1
