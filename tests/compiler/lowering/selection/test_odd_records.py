"""A record whose knobs do not fit its template is skipped with a warning; the build goes on."""

from __future__ import annotations

import json

import numpy as np
import pytest

from compiler import autotvm, relay

ARGS = [
    ["TENSOR", [1, 8, 14, 14], "float32"],
    ["TENSOR", [16, 8, 3, 3], "float32"],
    [1, 1],
    [1, 1, 1, 1],
    [1, 1],
    "NCHW",
    "NCHW",
    "float32",
]
GOOD = [
    ["tile_ic", "sp", [-1, 8]],
    ["tile_oc", "sp", [-1, 16]],
    ["tile_ow", "sp", [-1, 7]],
    ["unroll_kw", "ot", False],
]
ODD = {
    "empty": [],
    "a knob missing": GOOD[:2],
    "factor 0": [GOOD[0], ["tile_oc", "sp", [-1, 0]], *GOOD[2:]],
    "two open factors": [GOOD[0], ["tile_oc", "sp", [-1, -1]], *GOOD[2:]],
    "another kind of knob": [["tile_ic", "ot", 8], *GOOD[1:]],
}


@pytest.mark.parametrize("name", ["good", *ODD])
def test_a_record_with_an_odd_knob_is_skipped_with_a_warning(name, tmp_path, caplog):
    weights = np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype("float32")
    x = relay.var("x", shape=(1, 8, 14, 14))
    mod = relay.Function([x], relay.nn.conv2d(x, relay.const(weights), padding=(1, 1)))
    row = {
        "input": ["llvm", "conv2d_NCHWc.x86", ARGS, {}],
        "config": {"index": 0, "code_hash": None, "entity": ODD.get(name, GOOD)},
        "result": [[1e-4], 0, 1.0, 1.0],
        "version": 0.2,
        "tvm_version": "0.9",
    }
    log = tmp_path / "odd.log"
    log.write_text(json.dumps(row) + "\n")
    with autotvm.apply_history_best(str(log)):
        lib = relay.build(mod, "llvm")
    is_used = any("odd.log:1" in kernel.source for kernel in lib.report.kernels)
    assert is_used is (name == "good")
    assert ("odd.log:1: the record can't be used" in caplog.text) is (name != "good")
    data = np.random.default_rng(1).standard_normal((1, 8, 14, 14)).astype("float32")
    (result,) = lib.session().run({"x": data}).values()
    padded = np.pad(data.astype("float64"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    expected = np.einsum("nchwij,ocij->nohw", windows, weights)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
