"""`tvm.meta_schedule` as TVM 0.9 and 0.10 had it."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

from compiler import legacy
from compiler.errors import InputError

TARGET = {"kind": "llvm", "num-cores": 1}


@pytest.fixture(autouse=True)
def old_names():
    with legacy.installed():
        yield


def scaled(n=32):
    a = te.placeholder((n, n), name="a")
    return [a, te.compute((n, n), lambda i, j: a[i, j] * 2.0, name="b")]


def split(sch):
    _, j = sch.get_loops(sch.get_sblock("b", "main"))
    inner = sch.split(j, sch.sample_perfect_tile(j, n=2))[1]
    sch.vectorize(inner)


def module_of_one():
    function = te.create_prim_func(scaled()).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": function})


def recorded(given):
    """A search that finds the schedule `split` and keeps how it was asked for it."""
    from tvm import meta_schedule as ms

    def tune(mod, target, work_dir, **options):
        given.update(options, work_dir=work_dir)
        database = ms.database.MemoryDatabase()
        sch = tvm.tir.Schedule(mod)
        split(sch)
        arguments = ms.arg_info.ArgInfo.from_prim_func(mod["main"])
        workload = database.commit_workload(mod)
        database.commit_tuning_record(
            ms.database.TuningRecord(sch.trace, workload, [1.0], target, arguments)
        )
        return database

    return tune


@pytest.mark.parametrize("positional", [True, False])
def test_a_search_with_a_config_gives_the_best_schedule(positional):
    from tvm import meta_schedule as ms

    from compiler.legacy.meta_schedule import _searching

    given = {}
    config = ms.TuneConfig(max_trials_global=2, num_trials_per_iter=1, strategy="replay_func")
    search, target = _searching(recorded(given)), tvm.target.Target(TARGET)
    if positional:
        found = search(module_of_one(), target, config, "folder", task_name="main")
    else:
        found = search(mod=module_of_one(), target=target, config=config, work_dir="folder")
    assert given == {
        "max_trials_global": 2,
        "max_trials_per_task": None,
        "num_trials_per_iter": 1,
        "strategy": "replay-func",
        "task_scheduler": "gradient",
        "work_dir": "folder",
    }
    assert "sample_perfect_tile" in str(found.trace)
    library = tvm.build(found.mod, target="llvm")
    values = np.random.rand(32, 32).astype("float32")
    result = tvm.nd.array(np.zeros_like(values))
    library["main"](tvm.nd.array(values), result)
    np.testing.assert_array_equal(result.numpy(), values * 2)


def test_without_a_config_the_records_come_back():
    from tvm import meta_schedule as ms

    from compiler.legacy.meta_schedule import _searching

    given = {}
    search, target = _searching(recorded(given)), tvm.target.Target(TARGET)
    found = search(module_of_one(), target, "folder", max_trials_global=1, task_name="main")
    assert isinstance(found, ms.database.Database)
    assert given == {"max_trials_global": 1, "work_dir": "folder"}
    assert tvm.s_tir.meta_schedule.tune_tir.__module__ == "compiler.legacy.meta_schedule"


def test_tensors_are_searched_with_a_config_in_the_third_place(tmp_path, monkeypatch):
    from tvm import meta_schedule as ms

    given = {}

    def tune_tir(mod, target, *args, **options):
        given.update(options, mod=mod, args=args)

    monkeypatch.setattr(tvm.s_tir.meta_schedule, "tune_tir", tune_tir)
    config = ms.TuneConfig(max_trials_global=1)
    ms.tune_te(scaled(), "llvm -num-cores=1", config, str(tmp_path), num_threads=1)
    assert given["args"] == (config, str(tmp_path)) and given["num_threads"] == 1
    assert [str(each.name_hint) for each in given["mod"].get_global_vars()] == ["main"]


def test_parts_of_a_search_have_the_names_of_today():
    from tvm import meta_schedule as ms

    from compiler.legacy.meta_schedule import _parts

    parts = _parts(sch_rules=lambda: [], postprocs=lambda: [], runner=None, num_threads=3)
    assert isinstance(parts["space"], ms.space_generator.PostOrderApply)
    assert parts["num_tuning_cores"] == 3 and "runner" not in parts
    space = ms.space_generator.ScheduleFn(split)
    assert _parts(space=lambda: space)["space"] is space
    with pytest.raises(InputError, match="sch_rules: give them to the space"):
        _parts(space=space, sch_rules=lambda: [])
    with pytest.raises(InputError, match="blocks"):
        _parts(blocks=["b"])


def test_rules_of_ones_own_are_derived_objects():
    from tvm import meta_schedule as ms

    @ms.derived_object
    class Nothing(ms.schedule_rule.PyScheduleRule):
        def _initialize_with_tune_context(self, context):
            pass

        def apply(self, sch, block):
            return [sch]

        def clone(self):
            return Nothing()

    assert isinstance(Nothing(), ms.schedule_rule.ScheduleRule)
