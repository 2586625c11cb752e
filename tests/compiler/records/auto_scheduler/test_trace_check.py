"""Tuning records are data: their traces do what is on an allow-list, and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest

from compiler import auto_scheduler, relay
from compiler.errors import RecordError
from compiler.records.auto_scheduler.trace_check import check_trace

LOOPS = [["GetSBlock", [], ["b0", "main"], ["b0"]], ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]]]
CACHE = ["CacheRead", ["b0", ["b0"]], [0, "global"], ["b5"]]
NOT_ALLOWED = {
    "imported code": [
        ["Annotate", ["l2", '"module asm \\".section .text\\""'], ["pragma_import_llvm"], []]
    ],
    "imported source": [["Annotate", ["l2", '"x"'], ["pragma_import_c"], []]],
    "skipped loop": [["Annotate", ["l2", 1], ["pragma_debug_skip_region"], []]],
    "changed dtype": [CACHE, ["UnsafeSetDType", ["b5"], [0, "float16"], []]],
    "hidden access": [["UnsafeHideBufferAccess", ["b0", '"read"', [0]], [], []]],
    "pipeline": [["Annotate", ["l2", 1], ["software_pipeline_stage"], []]],
    "huge alignment": [CACHE, ["StorageAlign", ["b5"], [0, 0, 1 << 24, 1], []]],
    "unknown scope": [["SetScope", ["b0"], [0, "evil;scope"], []]],
    "unknown thread": [["Bind", ["l1"], ["threadIdx.q"], []]],
    "huge number": [["Annotate", ["l2", 2**40], ["pragma_auto_unroll_max_step"], []]],
    "object": [["Annotate", ["l2", {"a": 1}], ["pragma_unroll_explicit"], []]],
    "huge vector": [["Vectorize", ["l2"], [], []]],
}


@pytest.fixture(scope="module")
def network():
    weights = np.random.default_rng(0).standard_normal((4096, 16)).astype("float32")
    x = relay.var("x", shape=(8, 16))
    return relay.Function([x], relay.nn.dense(x, relay.const(weights))), weights


@pytest.mark.parametrize("name", NOT_ALLOWED)
def test_a_record_that_is_not_allowed_is_skipped_with_a_warning(name, network, tmp_path, caplog):
    mod, weights = network
    task = auto_scheduler.extract_tasks(mod, {}, "llvm")[0][0]
    row = {
        "v": 1,
        "kind": "auto_scheduler",
        "workload": {"key": task.workload_key},
        "target": {"kind": "llvm", "keys": ["cpu"]},
        "costs": [1e-9],
        "error": 0,
        "timestamp": 1.7e9,
        "trace": [LOOPS + NOT_ALLOWED[name], []],
    }
    log = tmp_path / "tuned.json"
    log.write_text(json.dumps(row) + "\n")
    with auto_scheduler.ApplyHistoryBest(str(log)):
        lib = relay.build(mod, "llvm", params={})
    assert "tuned.json:1: the record can't be replayed" in caplog.text
    assert not any("tuned.json" in kernel.source for kernel in lib.report.kernels)
    data = np.random.default_rng(1).standard_normal((8, 16)).astype("float32")
    (result,) = lib.session().run({"x": data}).values()
    np.testing.assert_allclose(result, data @ weights.T, rtol=1e-4, atol=1e-4)


def test_a_trace_that_is_longer_than_any_schedule_is_rejected():
    with pytest.raises(RecordError, match="instructions"):
        check_trace([LOOPS * 3000, []])
