"""`meta_schedule.relay_integration` and `auto_schedule`, as old scripts call them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm

from compiler import legacy
from compiler.errors import RecordError
from compiler.records.auto_scheduler.record import Record
from compiler.records.auto_scheduler.workload import workload_key

MODEL = """#[version = "0.0.5"]
def @main(%x: Tensor[(4, 16), float32], %w: Tensor[(8, 16), float32]) {
  nn.relu(nn.dense(%x, %w, units=8))
}
"""


@tvm.instrument.pass_instrument
class PassesSeen:
    """The names of passes that ran."""

    def __init__(self):
        self.names = []

    def run_before_pass(self, _mod, info):
        self.names.append(info.name)


def test_a_relay_module_is_tuned_and_compiled(tmp_path):
    with legacy.installed():
        from tvm import meta_schedule as ms
        from tvm import relay

        mod = relay.parse(MODEL)
        x, w = (np.ones(shape, "float32") for shape in ((4, 16), (8, 16)))
        integration = ms.relay_integration
        (task,) = integration.extract_tasks(mod, "llvm", {"w": w})
        assert task.weight == 1
        tuned = {"params": {"w": w}, "target": "llvm", "work_dir": str(tmp_path)}
        database = integration.tune_relay(
            mod, **tuned, max_trials_global=1, num_trials_per_iter=1, strategy="evolutionary"
        )
        assert database.log.read_text()
        seen = PassesSeen()
        for backend in ("graph", "vm"):
            lib = integration.compile_relay(
                database, mod, "llvm", {"w": w}, backend=backend, instruments=[seen],
                pass_config={"relay.backend.use_meta_schedule": True},
            )  # fmt: skip
        assert seen.names
        machine = tvm.runtime.vm.VirtualMachine(lib, tvm.cpu())
        np.testing.assert_allclose(machine.invoke("main", x).numpy(), x @ w.T)
        with pytest.raises(RecordError, match="strategy='replay-func'"):
            integration.tune_relay(mod, **tuned, max_trials_global=1, strategy="replay-func")
        with pytest.raises(RecordError, match="backend='aot'"):
            integration.compile_relay(database, mod, "llvm", {"w": w}, backend="aot")
        with pytest.raises(RecordError, match="dict is no database"):
            integration.compile_relay({}, mod, "llvm", {"w": w})


def test_tune_relay_of_tvm_0_10_returns_the_built_module(tmp_path):
    with legacy.installed():
        from tvm import meta_schedule as ms
        from tvm import relay
        from tvm.contrib import graph_executor
        from tvm.meta_schedule.tune import TuneConfig

        mod = relay.parse(MODEL)
        x, w = (np.ones(shape, "float32") for shape in ((4, 16), (8, 16)))
        config = TuneConfig(max_trials_global=1, num_trials_per_iter=1)
        lib = ms.tune_relay(mod, "llvm", config, str(tmp_path), params={"w": w}, builder=None)
        executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
        executor.run(x=x)
        np.testing.assert_allclose(executor.get_output(0).numpy(), x @ w.T)
        with pytest.raises(RecordError, match="database='redis'"):
            ms.tune_relay(mod, "llvm", config, str(tmp_path), database="redis")


def _listed_database(records):
    """A database of a script that holds its records in a list."""
    from tvm import meta_schedule as ms

    @ms.derived_object
    class Listed(ms.database.PyDatabase):
        def __init__(self, records):
            super().__init__()
            self.records = records

        def get_all_tuning_records(self):
            return self.records

        def commit_workload(self, mod):
            return ms.database.Workload(mod)

        def commit_tuning_record(self, record):
            self.records.append(record)

    return Listed(records)


def test_compile_relay_takes_records_of_a_user_defined_database():
    with legacy.installed():
        from tvm import meta_schedule as ms
        from tvm import relay

        mod, weight = relay.parse(MODEL), np.ones((8, 16), "float32")
        integration = ms.relay_integration
        (task,) = integration.extract_tasks(mod, "llvm", {"w": weight})
        kernel = tvm.IRModule({"main": task.func})
        sch = tvm.tir.Schedule(kernel)
        workload = ms.database.Workload(kernel)
        arguments = ms.arg_info.ArgInfo.from_prim_func(task.func)
        target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
        record = ms.database.TuningRecord(sch.trace, workload, [1.0], target, arguments)
        database = _listed_database([record])
        lib = integration.compile_relay(database, mod, "llvm", {"w": weight})
        assert lib.report.kernels[0].source == "auto_scheduler:<database>:1"


def test_tune_relay_adds_its_records_to_a_user_defined_database(tmp_path):
    with legacy.installed():
        from tvm import relay
        from tvm.meta_schedule import relay_integration

        mod, weight = relay.parse(MODEL), np.ones((8, 16), "float32")
        (task,) = relay_integration.extract_tasks(mod, "llvm -num-cores 1", {"w": weight})
        schedule = tvm.tir.Schedule(tvm.IRModule({"main": task.func}))
        (block, *_) = schedule.get_child_blocks(schedule.get_block("root"))
        schedule.split(schedule.get_loops(block)[0], [2, None])
        trace = json.loads(json.dumps(schedule.trace.as_json(), default=int))
        target = {"kind": "llvm", "keys": ["cpu"], "num-cores": 1}
        record = Record(workload_key(task.func), target, trace, (2e-3,)).with_tir(task.func)
        (tmp_path / "auto_scheduler.json").write_text(record.to_line() + "\n")
        database = _listed_database([])
        tuned = relay_integration.tune_relay(
            *(mod, {"w": weight}, "llvm -num-cores 1", tmp_path, 1),
            num_trials_per_iter=1,
            database=database,
        )
        assert tuned is database
        assert [float(each) for each in database.records[0].run_secs] == [2e-3]
        assert relay_integration.compile_relay(database, mod, "llvm", {"w": weight})


def test_one_task_is_searched_and_its_best_schedule_applied():
    with legacy.installed():
        from tvm import auto_scheduler, te

        @auto_scheduler.register_workload
        def doubled_of_strangers(n):
            a = te.placeholder((n,), name="a")
            return [a, te.compute((n,), lambda i: a[i] * 2, name="b")]

        task = auto_scheduler.create_task(doubled_of_strangers, (64,), "llvm")
        option = auto_scheduler.TuningOptions(num_measure_trials=1, verbose=0)
        sch, args = auto_scheduler.auto_schedule(task, tuning_options=option)
        built = tvm.build(sch, args, "llvm")
        a, b = (tvm.nd.array(np.arange(64, dtype="float32")) for _ in range(2))
        built(a, b)
    np.testing.assert_array_equal(b.numpy(), np.arange(64) * 2)
