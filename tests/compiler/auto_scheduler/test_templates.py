"""Templates of the schedule library in auto_scheduler records: searched, logged, built from."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import auto_scheduler, relay
from compiler import target as targets
from compiler.auto_scheduler import extract_tasks, load_records
from compiler.auto_scheduler.search.templates import TemplateSearch
from compiler.errors import RecordError
from compiler.lowering.selection.default_kernel import library_kernels
from compiler.lowering.selection.extract import alone
from compiler.measure.builder import LocalBuilder
from compiler.measure.candidate import MeasureErrorNo
from compiler.measure.runner import LocalRunner
from compiler.records.auto_scheduler.history import BestRecords
from compiler.records.auto_scheduler.log_index import LogFile
from compiler.records.auto_scheduler.record import Record, load_best_record, save_records
from compiler.records.auto_scheduler.template import Template
from compiler.records.log_target import log_target
from compiler.runtime import graph_executor
from tests.compiler.auto_scheduler.small import needs_tune

CPU = targets.parse("llvm -mcpu=x86-64-v3")


def two_convolutions():
    """Two equal convolutions, one after the other, of which only the second one adds."""
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 16, 8, 8), "float32"))
    weights = [
        relax.const((rng.standard_normal((16, 16, 3, 3)) / 12).astype("float32")) for _ in range(2)
    ]
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(relax.op.nn.conv2d(x, weights[0], padding=[1, 1]))
            first = builder.emit(relax.op.nn.relu(first))
            second = builder.emit(relax.op.nn.conv2d(first, weights[1], padding=[1, 1]))
            out = builder.emit_output(builder.emit(relax.op.add(second, first)))
        builder.emit_func_output(out)
    return builder.get()


def run(library):
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=np.linspace(-1, 1, 1024, dtype="float32").reshape(1, 16, 8, 8))
    return module.get_output(0).numpy()


def search_of(task):
    return TemplateSearch(task, [], "random", seed=1)


def record_of(task, name, cost=1e-6, error=0):
    """A record of the task's first config of a template."""
    tuner = next(t for t in search_of(task).tuners if t.task.name == name)
    template = Template(name, tuner.task.args, tuner.space.get(0).to_entity())
    return Record(task.workload_key, {"kind": "llvm"}, [[], []], (cost,), error, template=template)


def test_every_implementation_that_can_compute_a_task_is_searched():
    mod = two_convolutions()
    tasks, _ = extract_tasks(mod, {}, CPU)
    names = [{t.task.name for t in search_of(task).tuners} for task in tasks]
    assert names == [{"conv2d_direct.x86", "conv2d_winograd.x86", "conv2d_NCHWc.x86"}] * 2


def test_the_untuned_schedule_is_one_kernel_with_its_epilogue_fused():
    for task in extract_tasks(two_convolutions(), {}, CPU)[0]:
        (kernel,) = library_kernels(alone(*task.origin), CPU)
        assert kernel.calls == 1 and kernel.source == "topi:fallback"


def test_a_build_gives_each_kernel_the_template_of_its_own_record(tmp_path):
    mod, log = two_convolutions(), tmp_path / "templates.json"
    first, second = extract_tasks(mod, {}, CPU)[0]
    save_records(
        log, [record_of(first, "conv2d_NCHWc.x86"), record_of(second, "conv2d_direct.x86")]
    )
    with tvm.transform.PassContext(opt_level=3):
        plain = run(relay.build(mod, CPU))
        with auto_scheduler.ApplyHistoryBest(log):
            library = relay.build(mod, CPU)
    kernels = {
        kernel.implementation: kernel.source
        for kernel in library.report.kernels
        if "nn.conv2d" in kernel.operators
    }
    assert kernels == {
        "conv2d_NCHWc.x86": "auto_scheduler:templates.json:1",
        "conv2d_direct.x86": "auto_scheduler:templates.json:2",
    }
    assert not [note for note in library.report.notes if "conv2d" in note]
    np.testing.assert_allclose(run(library), plain, rtol=1e-4, atol=1e-5)


def test_template_records_survive_a_log_and_are_indexed(tmp_path):
    log = tmp_path / "templates.json"
    task = extract_tasks(two_convolutions(), {}, CPU)[0][0]
    written = record_of(task, "conv2d_direct.x86")
    save_records(log, [written])
    (read,) = load_records(log, strict=True)
    assert read.template == written.template and not read.has_trace
    (seen,) = LogFile(log).indexed()
    assert (seen.keys, seen.costs) == ([task.workload_key], [1e-6])
    best = BestRecords()
    assert best.add_log(LogFile(log)) == 1
    found = next(best.find(log_target(CPU), task.workload_key, False))
    assert found.template == written.template


def test_a_template_holds_no_schedule_of_the_plain_compute(tmp_path):
    log = tmp_path / "templates.json"
    task = extract_tasks(two_convolutions(), {}, CPU)[0][0]
    save_records(log, [record_of(task, "conv2d_direct.x86")])
    assert load_best_record(log, tuned=True) == (None, None)
    with pytest.raises(RecordError, match="has no schedule of"):
        task.apply_best(log)


@pytest.mark.parametrize("damage", [{"args": 3}, {"entity": [["m", "xx", 1]]}, {"task": None}])
def test_a_damaged_template_is_refused(tmp_path, damage):
    log = tmp_path / "templates.json"
    task = extract_tasks(two_convolutions(), {}, CPU)[0][0]
    row = json.loads(record_of(task, "conv2d_direct.x86").to_line())
    row["template"].update(damage)
    if damage == {"task": None}:
        del row["template"]["task"]
    log.write_text(json.dumps(row) + "\n")
    with pytest.raises(RecordError, match="lacks or misspells a field"):
        load_records(log, strict=True)


@pytest.fixture(scope="module")
def measuring():
    """A builder, a runner, and a runner that compares."""
    once = {"number": 1, "repeat": 1, "cooldown_interval": 0, "timeout": 60}
    checking = LocalRunner(**once, check_correctness=True)
    with LocalBuilder(timeout=60) as builder, LocalRunner(**once) as runner, checking as checker:
        yield builder, runner, checker


@needs_tune
def test_a_round_measures_each_template_once_and_goes_on_where_a_log_ends(measuring):
    task = extract_tasks(two_convolutions(), {}, CPU)[0][0]
    records = search_of(task).round(5, *measuring)
    assert len(records) == 5 and all(record.cost < math.inf for record in records)
    seen = [json.dumps(record.template.to_json()) for record in records]
    assert len({record.template.task for record in records}) == 2
    again = TemplateSearch(task, records, "random", seed=1)
    assert again.best == min(record.cost for record in records)
    more = again.round(2, *measuring)
    assert not set(seen) & {json.dumps(record.template.to_json()) for record in more}


@needs_tune
def test_a_config_with_wrong_numbers_is_a_failed_measurement(measuring, monkeypatch):
    builder, runner, checker = measuring
    strict = replace(checker.options, tolerance=-1.0)  # which no result keeps
    monkeypatch.setattr(checker, "options", strict)
    task = extract_tasks(two_convolutions(), {}, CPU)[0][0]
    (record,) = search_of(task).round(1, builder, runner, checker)
    assert record.error == MeasureErrorNo.WRONG_ANSWER and record.cost == math.inf
