from __future__ import annotations

import json

import pytest

from compiler.cli.app import app
from compiler.runtime.debugger.stopwatch import RUNTIME


@pytest.fixture(autouse=True)
def _threads(monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "1")  # the command sets it; this puts it back


@pytest.mark.parametrize("of", ["model", "library"])
def test_json_has_time_share_rates_and_source_of_each_kernel(cli, request, of):
    path = request.getfixturevalue(of)
    result = cli.invoke(app, ["profile", str(path), "--repeat", "3", "--json"])
    assert result.exit_code == 0, result.stderr
    profile = json.loads(result.stdout)
    assert profile["repeats"] == 3
    assert profile["milliseconds"] > 0
    assert sum(each["share"] for each in profile["kernels"]) == pytest.approx(1)
    times = [each["milliseconds"] for each in profile["kernels"]]
    assert times == sorted(times, reverse=True)
    (conv,) = [k for k in profile["kernels"] if "conv2d" in " ".join(k["operators"])]
    assert conv["source"] == "topi:fallback"
    assert conv["calls"] == 1
    assert conv["nodes"] == ["Conv_0", "Relu_0"]
    # 4 output channels of 8 x 8, 27 multiply-adds each but for taps in rows of padding, a rectifier
    flops = conv["gflops"] * conv["milliseconds"] * 1e6
    assert flops >= 4 * (64 * 27 - 2 * 8 * 9) * 2
    assert conv["gbytes"] > 0
    assert len(conv["shapes"]) >= 3
    assert RUNTIME in [each["name"] for each in profile["kernels"]]


def test_the_table_shows_the_kernels(cli, library):
    result = cli.invoke(app, ["profile", str(library), "--repeat", "2"])
    assert result.exit_code == 0, result.stderr
    assert "GFLOP/s" in result.stdout
    assert "conv2d" in result.stdout
    assert "Conv_0" in result.stdout


def test_a_trace_has_an_event_for_each_call(cli, library, tmp_path):
    path = tmp_path / "trace.json"
    words = ["profile", str(library), "--repeat", "2", "--trace", str(path), "--json"]
    result = cli.invoke(app, words)
    assert result.exit_code == 0, result.stderr
    profile = json.loads(result.stdout)
    assert profile["events"] == []
    document = json.loads(path.read_text())
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    starts = [event["ts"] for event in events]
    assert min(starts) >= 0 and all(event["dur"] > 0 for event in events)
    (conv,) = [event for event in events if "conv2d" in event["name"]]
    assert conv["cat"] == "kernel"
    assert conv["args"]["nodes"] == ["Conv_0", "Relu_0"]
    kernels = [each for each in profile["kernels"] if each["name"] != RUNTIME]
    assert sum(event["cat"] == "kernel" for event in events) == sum(k["calls"] for k in kernels)
