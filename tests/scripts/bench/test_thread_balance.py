"""On paper, parallel loops last as long as their longest run of iterations."""

from __future__ import annotations

import sys

import onnx
import onnx.parser
import pytest
from tvm.script import tirx as T

from scripts.bench import thread_balance
from scripts.bench.thread_balance import Nest, busy, nests_of


def test_a_loop_lasts_as_long_as_the_core_with_the_most_iterations():
    assert busy([Nest(100, 8)], 8) == 1
    assert busy([Nest(100, 9)], 8) == pytest.approx(9 / 16)
    assert busy([Nest(100, 8), Nest(100, 1)], 4) == pytest.approx(200 / (4 * 125))
    assert busy([], 4) == 1


def test_what_is_outside_of_parallel_loops_is_work_of_one_core():
    @T.prim_func(s_tir=True)
    def kernel(x: T.Buffer((6, 4), "float32"), y: T.Buffer((6, 4), "float32")) -> None:
        for i in T.parallel(6):
            for j in T.vectorized(4):
                y[i, j] = x[i, j] * T.float32(2) + T.float32(1)
        for i in T.serial(5):
            y[i, 0] = x[i, 0]

    assert nests_of(kernel) == [Nest(6 * 4 * 3, 6), Nest(5, 1)]


def test_a_line_for_each_model(tmp_path, monkeypatch, capsys):
    model = tmp_path / "tiny.onnx"
    text = """<ir_version: 10, opset_import: ["": 13]>
    tiny (float[1,4] x) => (float[1,4] y) { y = Relu(x) }"""
    onnx.save(onnx.parser.parse_model(text), model)
    arguments = ["thread_balance.py", str(model), "--cores", "1", "64", "--kernels", "1"]
    monkeypatch.setattr(sys, "argv", arguments)
    thread_balance.main()
    printed = capsys.readouterr().out
    assert model.stem in printed and "100%" in printed
