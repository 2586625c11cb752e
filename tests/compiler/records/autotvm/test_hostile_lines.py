"""A bad line costs a log that line, whatever is wrong with it."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import autotvm, relay
from compiler.autotvm import ApplyGraphBest, ApplyHistoryBest
from compiler.autotvm.best_records import best_records
from compiler.autotvm.tuner.base import as_measured
from compiler.errors import RecordError
from compiler.records.autotvm.ranking import rank_log
from compiler.records.autotvm.record import decode, load_from_file
from compiler.records.log_target import log_target
from compiler.runtime import graph_executor
from tests.compiler.hostile_json import variants

A, B = ["TENSOR", [4, 64], "float32"], ["TENSOR", [32, 64], "float32"]
KNOBS = [["tile_y", "sp", [-1, 1, 4]], ["tile_x", "sp", [-1, 1, 16]], ["tile_k", "sp", [-1, 8]]]


def line(costs=(2e-5,), tile=16):
    knobs = [KNOBS[0], ["tile_x", "sp", [-1, 1, tile]], KNOBS[2]]
    row = {
        "input": ["llvm -keys=cpu", "dense_pack.x86", [A, B, None, "float32"], {}],
        "config": {"index": 7, "code_hash": None, "entity": knobs},
        "result": [list(costs), 0, 1.5, 1600000000.0],
        "version": 0.2,
        "tvm_version": "0.18.0",
    }
    return json.dumps(row)


OLD = json.dumps({
    "i": ["llvm", "topi_nn_task", [], {},
          ["dense", [4, 64, "float32"], [32, 64, "float32"], None, "float32"],
          {"i": 7, "t": "direct", "c": None, "e": KNOBS}],
    "r": [[2e-5], 0, 1.5, 1600000000.0], "v": 0.1,
})  # fmt: skip


def found(context):
    workload = ("dense_pack.x86", tuple(map(_tuple, A)), tuple(map(_tuple, B)), None, "float32")
    return context.query(log_target("llvm -keys=cpu"), workload)


def _tuple(value):
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize("text", [line(), OLD], ids=["0.2", "0.1"])
def test_no_value_at_any_place_aborts_a_log(tmp_path, caplog, text):
    log = tmp_path / "a.log"
    lines = list(variants(text))
    log.write_text("\n".join([line(costs=[1e-9]), *lines]) + "\n")
    records = list(load_from_file(log))
    assert len(records) < len(lines)
    assert f"a.log: skipped {len(lines) + 1 - len(records)} line(s)" in caplog.text
    assert len(list(rank_log(log))) == len(records)
    best_records(records)
    for context in (ApplyHistoryBest(log), ApplyHistoryBest(records), ApplyGraphBest(log)):
        for inp, _ in records:
            context.query(inp.target, inp.task.workload)
        config = found(context)
        assert config is not None
        # A graph tuner's log is in the order of its convolutions, the last for all that follow.
        assert isinstance(context, ApplyGraphBest) or config.source == "topi:a.log:1"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("2e-05", "1e999"), "are not seconds"),
        (("1.5", "1e999"), "are not seconds"),
        (('"index": 7', '"index": ' + "9" * 5000), "integer of thousands of digits"),
        (("[-1, 1, 16]", "[-1, 1, " + "9" * 5000 + "]"), "integer of thousands of digits"),
        (("null, ", "[" * 300 + "]" * 300 + ", "), "nested more than 64 levels deep"),
        (("null, ", "[" * 100_000 + "]" * 100_000 + ", "), "nested too deeply"),
        (('"index": 7', '"index": 1e999'), "lacks or misspells a field"),
        (("[-1, 1, 16]", '[-1, 1, "x"]'), "knob 'tile_x'"),
    ],
)
def test_a_skipped_line_is_named_with_file_line_and_reason(tmp_path, caplog, change, reason):
    assert change[0] in line()
    log = tmp_path / "a.log"
    log.write_text(f"{line()}\n{line().replace(*change)}\n{line()}\n")
    with caplog.at_level(logging.WARNING):
        assert len(list(load_from_file(log))) == 2
    assert "a.log: skipped 1 line(s)" in caplog.text
    assert "line 2: " in caplog.text and reason in caplog.text
    assert len(list(rank_log(log))) == 2
    for read in (load_from_file, rank_log):
        with pytest.raises(RecordError, match=f"a.log:2: .*{reason}"):
            list(read(log, strict=True))


@pytest.mark.parametrize("costs", [[0.0], [-1.0], [-0.0], [-1.0, 5.0], [1e308, 1e308]])
def test_times_that_no_clock_gave_never_rank_first(tmp_path, costs):
    log = tmp_path / "a.log"
    log.write_text(f"{line(costs, tile=8)}\n{line([1.0])}\n")
    records = list(load_from_file(log))
    assert [result.costs[-1] for _, result in best_records(records)] == [1.0]
    for context in (ApplyHistoryBest(log), ApplyHistoryBest(records), ApplyGraphBest(log)):
        config = found(context)
        assert config is not None and config.source == "topi:a.log:2"
    log.write_text(f"{line(costs)}\n")
    assert found(ApplyHistoryBest(log)) is None


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), 0.0, -1.0])
def test_pairs_of_a_script_with_such_times_never_rank_first(cost):
    (bad, result), good = decode(line(tile=8)), decode(line([1.0]))
    config = found(ApplyHistoryBest([(bad, replace(result, costs=(cost,))), good]))
    assert config is not None and config.cost == 1.0


@pytest.mark.parametrize("costs", [[0.0], [-1.0], [-1.0, 5.0]])
def test_a_tuner_that_learns_from_a_log_holds_such_times_for_failures(costs):
    assert not as_measured(decode(line(costs))[1]).is_right
    assert as_measured(decode(line())[1]).is_right


def test_a_model_builds_with_a_log_that_has_bad_lines(tmp_path):
    log = tmp_path / "a.log"
    bad = [line().replace("2e-05", "1e999"), line([0.0], tile=8), "[" * 100_000]
    log.write_text("\n".join([*bad, line(), '{"input": ' + "9" * 5000 + "}"]))
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, "float32") for shape in ((4, 64), (32, 64)))
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 32))],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    mod, params = relay.frontend.from_onnx(model, {"x": x.shape})
    with autotvm.apply_history_best(log):
        library = relay.build(mod, target="llvm", params=params)
    assert "topi:a.log:4" in [kernel.source for kernel in library.report.kernels]
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.set_input("x", x)
    module.run()
    wanted = x.astype("float64") @ w.T.astype("float64")
    np.testing.assert_allclose(module.get_output(0).numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_an_index_outside_of_every_search_space_skips_the_record(tmp_path, caplog):
    log = tmp_path / "a.log"
    log.write_text(line().replace('"index": 7', f'"index": {10**30}') + "\n" + line() + "\n")
    assert len(list(rank_log(log))) == 1
    assert "outside of every search space" in caplog.text
