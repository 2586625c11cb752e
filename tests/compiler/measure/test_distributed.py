"""Measuring over Dask, with worker processes of this machine, one of them killed."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from compiler import auto_scheduler
from compiler import target as targets
from compiler.auto_scheduler.search.candidate import ScheduledModule
from compiler.auto_scheduler.task import SearchTask
from compiler.errors import BatonError
from compiler.measure.builder import LocalBuilder
from compiler.measure.distributed import connect, resource_of
from compiler.records.auto_scheduler.workload import canonical

distributed = pytest.importorskip("distributed", reason="the extra 'distributed' is not installed")
CPU = targets.parse("llvm -mcpu=x86-64-v3")
TIMING = {"timeout": 60, "number": 1, "repeat": 1, "cooldown_interval": 0.0}


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        resources={"cpu-x86-64-v3": 1},
        dashboard_address=None,
    ) as cluster:
        yield cluster


@pytest.fixture
def parts(cluster):
    builder, runner = connect(cluster.scheduler_address, LocalBuilder(timeout=60), TIMING)
    yield builder, runner
    builder.close()
    builder.client.close()


def candidate(n):
    import tvm
    from tvm import te

    x = te.placeholder((n,), name="x")
    func = te.create_prim_func([x, te.compute((n,), lambda i: x[i] * 2)])
    return ScheduledModule.of(tvm.IRModule({"main": canonical(func)}), CPU)


def test_candidates_are_built_and_measured_by_workers(parts):
    builder, runner = parts
    candidates = [candidate(8), candidate(16)]
    results = runner.run(candidates, builder.build(candidates))
    assert [result.is_right for result in results] == [True, True]
    assert all(0 < result.costs[0] < 1 for result in results)


def test_a_killed_worker_costs_no_result_and_doubles_none(cluster, parts):
    builder, runner = parts
    victim = next(iter(cluster.workers.values())).pid
    threading.Timer(0.5, os.kill, (victim, signal.SIGKILL)).start()
    candidates = [candidate(n) for n in range(4, 10)]
    results = runner.run(candidates, builder.build(candidates))
    assert len(results) == len(candidates)
    assert all(result.is_right for result in results)
    deadline = time.monotonic() + 20
    while len(cluster.scheduler_info["workers"]) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)  # the nanny starts another


def test_a_cluster_that_lost_all_workers_is_waited_for(cluster, parts):
    builder, runner = parts
    candidates = [candidate(12)]
    builds = builder.build(candidates)
    for worker in list(cluster.workers.values()):
        os.kill(worker.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while cluster.scheduler_info["workers"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert runner.run(candidates, builds)[0].is_right


def test_a_device_that_no_worker_has_is_named(parts):
    builder, runner = parts
    wanted = ScheduledModule(candidate(8).text, {"kind": "cuda", "arch": "sm_90"}, "cuda")
    with pytest.raises(BatonError, match=r"cuda-sm_90.*there are: cpu-x86-64-v3"):
        runner.run([wanted], builder.build([candidate(8)]))


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr("compiler.measure.distributed._SECONDS_TO_CONNECT", 1)
    with pytest.raises(BatonError, match=r"127\.0\.0\.1:9"):
        connect("tcp://127.0.0.1:9", LocalBuilder(), TIMING)


def test_resources_are_named_after_the_device():
    assert resource_of({"kind": "llvm", "mcpu": "znver5"}) == "cpu-znver5"
    assert resource_of({"kind": "cuda", "arch": "sm_90"}) == "cuda-sm_90"


def test_a_search_over_workers_logs_each_candidate_once(parts, tmp_path):
    from tvm import te

    builder, runner = parts
    x, w = te.placeholder((8, 8), name="x"), te.placeholder((8, 8), name="w")
    axis = te.reduce_axis((0, 8), name="k")
    product = te.compute((8, 8), lambda i, j: te.sum(x[i, axis] * w[axis, j], axis=axis))
    task = SearchTask(te.create_prim_func([x, w, product]), target=CPU)
    log = tmp_path / "log.json"
    options = auto_scheduler.TuningOptions(
        4, num_measures_per_round=2, verbose=0, builder=builder, runner=runner,
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    )  # fmt: skip
    small = {"evolutionary_search_population": 4, "sample_init_min_population": 2}
    task.tune(options, auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel(), small, 5))
    records = auto_scheduler.load_records(log, strict=True)
    assert 2 <= len(records) <= 4
    assert len({str(record.trace) for record in records}) == len(records)
