"""A graph log gives each convolution of a network its own record, in the order of execution."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import autotvm, legacy, relay
from compiler.errors import RecordError

DATA, WEIGHT = ["TENSOR", [1, 16, 8, 8], "float32"], ["TENSOR", [16, 16, 3, 3], "float32"]
ARGS = [DATA, WEIGHT, [1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"]


def line(tile_ow, cost, batch=1):
    entity = [["tile_ic", "sp", [-1, 16]], ["tile_oc", "sp", [-1, 16]],
              ["tile_ow", "sp", [-1, tile_ow]], ["unroll_kw", "ot", False]]  # fmt: skip
    args = [["TENSOR", [batch, *DATA[1][1:]], "float32"], *ARGS[1:]]
    row = {
        "input": ["llvm -keys=cpu", "conv2d_NCHWc.x86", args, {}],
        "config": {"index": 0, "code_hash": None, "entity": entity},
        "result": [[cost], 0, 1.0, 1.0],
        "version": 0.2,
        "tvm_version": "0.18.0",
    }
    return json.dumps(row) + "\n"


def network(convolutions, batch):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((batch, 16, 8, 8), "float32"))
    rng = np.random.default_rng(0)
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(convolutions):
                weight = relax.const(rng.standard_normal((16, 16, 3, 3)).astype("float32"))
                value = builder.emit(relax.op.nn.conv2d(value, weight, padding=(1, 1, 1, 1)))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.get()


def sources(convolutions, context, batch=1):
    with context, tvm.transform.PassContext(opt_level=3):
        report = relay.build(network(convolutions, batch), "llvm -num-cores=2").report
    return [k.source for k in report.kernels for _ in range(k.calls) if "nn.conv2d" in k.operators]


def test_convolutions_of_one_workload_take_the_records_in_turn(tmp_path):
    log = tmp_path / "net.graph.log"
    log.write_text(line(8, 1e-5) + line(4, 2e-5))
    context = autotvm.apply_graph_best(log)
    expected = ["topi:net.graph.log:1", "topi:net.graph.log:2", "topi:net.graph.log:2"]
    assert sources(3, context) == expected
    assert sources(3, context) == expected  # each build starts with the first record


def test_passes_that_only_ask_for_records_take_none(tmp_path):
    log = tmp_path / "batch.graph.log"
    log.write_text(line(8, 1e-5, batch=2) + line(4, 2e-5, batch=2))
    expected = ["topi:batch.graph.log:1", "topi:batch.graph.log:2"]
    assert sources(2, autotvm.apply_graph_best(log), batch=2) == expected


def test_a_history_gives_all_of_them_the_cheapest(tmp_path):
    log = tmp_path / "net.log"
    log.write_text(line(8, 1e-5) + line(4, 2e-5))
    assert set(sources(2, autotvm.apply_history_best(log))) == {"topi:net.log:1"}


def test_graph_tuners_write_the_fastest_record_of_each_workload(tmp_path, monkeypatch):
    for name in ("compiler.autotvm.graph_tuner", "tvm.autotvm.graph_tuner"):
        monkeypatch.delitem(sys.modules, name, raising=False)  # the first import, as in a script
    log, chosen = tmp_path / "net.log", tmp_path / "net.graph.log"
    log.write_text(line(8, 2e-5) + line(4, 1e-5) + line(8, 3e-5, batch=2))
    with legacy.installed():
        from tvm.autotvm.graph_tuner import DPTuner, PBQPTuner

        for tuner in (DPTuner, PBQPTuner):
            executor = tuner(None, {"x": DATA[1]}, str(log), [], "llvm", max_sch_num=2)
            with pytest.raises(RecordError, match="call run"):
                executor.write_opt_sch2record_file(str(chosen))
            executor.benchmark_layout_transform(min_exec_num=2)
            executor.run()
            executor.write_opt_sch2record_file(str(chosen))
            costs = [result.costs for _, result in autotvm.load_from_file(chosen)]
            assert costs == [(1e-5,), (3e-5,)]
        log.write_text("")
        with pytest.raises(RecordError, match="tune the tasks first"):
            DPTuner(None, {"x": DATA[1]}, str(log), [], "llvm").run()
