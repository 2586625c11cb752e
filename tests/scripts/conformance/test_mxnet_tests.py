"""MXNet's test files run under the old names, and what is refused by design is counted apart."""

from __future__ import annotations

import subprocess
import sys

FILE = """
import ctypes

import mxnet as mx
import numpy as np
from mxnet import gluon, nd
from mxnet.base import MXNetError, SymbolHandle, _LIB, c_str, c_str_array, check_call, mx_uint
from mxnet.gluon import nn
from mxnet.symbol import Symbol
from mxnet.test_utils import assert_almost_equal
from nose.tools import raises


def test_symbols_and_partitions():
    x = mx.sym.var("x", shape=(2, 3))
    y = mx.sym.exp(x) + 1
    out = SymbolHandle()
    names = ["exp"]
    check_call(_LIB.MXBuildSubgraphByOpNames(
        y.handle, c_str("default"), mx_uint(1), c_str_array(names), ctypes.byref(out)))
    assert any(node.subgraphs for node in Symbol(out).graph.nodes)
    exe = Symbol(out).simple_bind(ctx=mx.current_context(), grad_req="null")
    exe.arg_dict["x"][:] = mx.nd.ones((2, 3))
    exe.forward()
    assert_almost_equal(exe.outputs[0].asnumpy(), np.full((2, 3), np.exp(1) + 1))


@raises(MXNetError)
def test_errors():
    mx.nd.ones((2,)) + mx.nd.ones((3,))


def test_training():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    with mx.autograd.record():
        net(nd.ones((1, 3)))


def test_wrong():
    assert gluon.Parameter("w", shape=(2,)).shape == (3,)
"""


def test_old_names_are_found_and_refusals_counted(tmp_path):
    folder = tmp_path / "mxnet" / "tests" / "python" / "unittest"
    folder.mkdir(parents=True)
    (folder / "test_mine.py").write_text(FILE)
    command = [
        sys.executable,
        "-m",
        "scripts.conformance.mxnet_tests",
        str(tmp_path / "mxnet"),
        "test_mine.py",
    ]
    command += ["--results", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "| test_mine.py | 2 | 1 | 1 | 0 | 0 |" in done.stdout
    assert "Baton computes inference only" in done.stdout
