from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from typing import ClassVar

import numpy as np
import pytest

from compiler.cli import bench, engines
from compiler.cli.app import app
from compiler.cli.console import Steps, show
from compiler.cli.files import json_text
from compiler.cli.processes import WorkerError, WorkerProcess
from compiler.errors import BatonError, FrontendError


def test_baton_and_its_peers_are_measured_and_compared(cli, model, tmp_path):
    path = tmp_path / "out.json"
    arguments = [
        "bench",
        str(model),
        "--peers",
        "onnxruntime,relax",
        "--shape",
        "data=1,3,8,8",
        "--rounds",
        "2",
    ]
    result = cli.invoke(app, [*arguments, "--seconds", "0.01", "--output", str(path)])
    assert result.exit_code == 0, result.stderr
    assert "onnxruntime" in result.stdout
    document = json.loads(path.read_text())
    (measured,) = document["models"]
    assert measured["model"] == str(model)
    assert list(measured["engines"]) == ["baton", "onnxruntime", "relax"]
    for engine in measured["engines"].values():
        assert engine["failed"] == ""
        assert engine["error"] < 1e-4
        assert len(engine["rounds_ms"]) == 2
        assert engine["median_ms"] > 0
        assert engine["peak_bytes"] > 2**20
        assert engine["build_seconds"] > 0
    assert measured["engines"]["baton"]["ratio"] == 1
    assert document["options"]["threads"] == 1


def test_a_library_is_measured_alone_and_with_its_model_beside_peers(cli, model, library):
    timing = ["--rounds", "1", "--seconds", "0.01", "--json"]
    result = cli.invoke(app, ["bench", str(library), *timing])
    assert result.exit_code == 0, result.stderr
    assert "--model" in result.stderr
    document = json.loads(result.stdout)
    (measured,) = document["models"]
    assert list(measured["engines"]) == ["baton"]
    assert measured["engines"]["baton"]["median_ms"] > 0
    assert measured["engines"]["baton"]["build_seconds"] == 0
    words = ["bench", str(library), "--model", str(model), "--peers", "onnxruntime", *timing]
    result = cli.invoke(app, words)
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["options"]["model"] == str(model)
    engines = document["models"][0]["engines"]
    assert list(engines) == ["baton", "onnxruntime"]
    assert all(engine["failed"] == "" and engine["error"] < 1e-4 for engine in engines.values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["LIBRARY", "--precision", "bf16"], "is built already"),
        (["LIBRARY", "LIBRARY", "--model", "m.onnx"], "of one built library"),
        (["MODEL", "--peers", "", "--model", "m.onnx"], "of one built library"),
    ],
)
def test_options_that_do_not_fit_a_library_are_errors(cli, model, library, words, message):
    names = {"LIBRARY": str(library), "MODEL": str(model)}
    result = cli.invoke(app, ["bench", *(names.get(word, word) for word in words)])
    assert result.exit_code == 1
    assert message in result.stderr


TIMES = {"baton": [10.0, 20.0, 40.0], "onnxruntime": [30.0, 40.0, 400.0], "relax": [900.0] * 3}


class FakeWorker:
    """Answers at once; a run of the n-th measurement takes `TIMES[name][n]` milliseconds."""

    sequence: ClassVar[list[tuple[str, str]]] = []
    asked: ClassVar[dict[str, int]] = defaultdict(int)

    def __init__(self, name, threads, environment=None, cpus=()):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def close(self):
        self.sequence.append((self.name, "close"))

    def ask(self, do, **arguments):
        self.sequence.append((self.name, do))
        if do == "build":
            return {"seconds": 1.0, "inputs": [["data", [1], "float32"]], "device": "cpu"}
        if do == "load":
            return {"seconds": 0.5}
        if do == "run":
            np.savez(arguments["save"], **{"0": np.ones(1)})
            return {"outputs": 1}
        number = self.asked[self.name]
        self.asked[self.name] += 1
        runs = 1 if self.name == "relax" else 9
        return {"milliseconds": [TIMES[self.name][number]] * runs, "peak_bytes": 1}


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(bench, "WorkerProcess", FakeWorker)
    monkeypatch.setattr(bench, "_SETTLE_SECONDS", 0)
    monkeypatch.setattr(FakeWorker, "sequence", [])
    monkeypatch.setattr(FakeWorker, "asked", defaultdict(int))
    return FakeWorker


def test_engines_take_turns_and_the_ratio_is_the_median_over_rounds(fake, model):
    options = bench.BenchOptions(peers=("onnxruntime",), rounds=3)
    (result,) = bench.benchmark([str(model)], options, Steps())
    measured = [name for name, do in fake.sequence if do == "measure"]
    assert measured == ["baton", "onnxruntime"] * 3
    assert result.engines["baton"].median_ms == 20
    assert result.engines["onnxruntime"].ratio == 3  # of 3, 2 and 10
    assert result.engines["onnxruntime"].median_ms == 40


def test_both_precisions_are_measured_in_turn(fake, model, monkeypatch):
    built = {}
    ask = fake.ask

    def noted(self, do, **arguments):
        if do == "build":
            assert arguments["engine"] == "baton"
            built[self.name] = arguments["options"]["precision"]
        return ask(self, do, **arguments)

    monkeypatch.setattr(fake, "ask", noted)
    monkeypatch.setitem(TIMES, "baton-strict", [20.0, 60.0, 40.0])
    options = bench.BenchOptions(peers=(), rounds=3, precisions=("default", "strict"))
    (result,) = bench.benchmark([str(model)], options, Steps())
    assert built == {"baton": "default", "baton-strict": "strict"}
    measured = [name for name, do in fake.sequence if do == "measure"]
    assert measured == ["baton", "baton-strict"] * 3
    assert result.engines["baton-strict"].ratio == 2


def test_a_precision_that_is_not_known_is_a_usage_error(cli, model):
    for command in (["bench", str(model), "--peers", ""], ["compile", str(model)]):
        words = [*command, "--precision", "exact"]
        result = cli.invoke(app, words, env={"COLUMNS": "200"})
        assert result.exit_code == 2
        assert "'exact' is not one of strict, fast, f32, bf16, f16, tf32" in result.stderr


def test_a_slow_engine_leaves_after_two_rounds(fake, model):
    options = bench.BenchOptions(peers=("relax",), rounds=3)
    (result,) = bench.benchmark([str(model)], options, Steps())
    assert len(result.engines["baton"].rounds_ms) == 3
    assert len(result.engines["relax"].rounds_ms) == 2
    assert result.engines["relax"].ratio == pytest.approx((90 + 45) / 2)


def test_a_peer_that_fails_is_left_out_and_says_why(fake, model, monkeypatch, capsys):
    honest = FakeWorker.ask

    def ask(self, do, **arguments):
        if (self.name, do) == ("onnxruntime", "run"):
            raise WorkerError("onnxruntime: no kernel for Foo")
        return honest(self, do, **arguments)

    monkeypatch.setattr(FakeWorker, "ask", ask)
    options = bench.BenchOptions(peers=("onnxruntime",), rounds=1)
    results = list(bench.benchmark([str(model)], options, Steps()))
    assert results[0].engines["onnxruntime"].failed == "onnxruntime: no kernel for Foo"
    assert results[0].engines["baton"].rounds_ms == [10.0]
    assert ("onnxruntime", "close") in fake.sequence
    show(bench.result_table(results[0], options.threads))
    assert "no kernel for Foo" in capsys.readouterr().out
    assert "no kernel for Foo" in json_text(bench.to_json(results, options))


def test_a_model_that_baton_fails_on_is_an_error_behind_the_other_results(
    fake, model, tmp_path, monkeypatch
):
    wrong = tmp_path / "wrong.onnx"
    wrong.write_bytes(b"\x09not a model")
    honest = fake.ask

    def ask(self, do, **arguments):
        if do == "build" and arguments["model"] == str(wrong):
            raise FrontendError("baton: wrong.onnx\nis not a model")
        return honest(self, do, **arguments)

    monkeypatch.setattr(fake, "ask", ask)
    options = bench.BenchOptions(peers=("onnxruntime",), rounds=1)
    failed, measured = bench.benchmark([str(wrong), str(model)], options, Steps())
    assert failed.engines["baton"].failed == "baton: wrong.onnx is not a model"
    assert not failed.engines["onnxruntime"].rounds_ms
    assert measured.engines["baton"].median_ms == 10
    with pytest.raises(BatonError, match=r"1 of 2 models failed.*wrong\.onnx: baton: wrong"):
        bench.check_results([failed, measured])
    bench.check_results([measured])


def test_a_file_that_is_no_model_fails_in_the_command(cli, tmp_path):
    wrong = tmp_path / "wrong.onnx"
    wrong.write_bytes(b"\x09not a model")
    result = cli.invoke(app, ["bench", str(wrong), "--peers", ""])
    assert result.exit_code == 1
    assert "wrong.onnx" in result.stderr


def test_an_unknown_peer_and_one_that_is_not_installed_are_errors(monkeypatch):
    with pytest.raises(BatonError, match="'tensorflow'"):
        bench.check_peers(["tensorflow"])
    monkeypatch.setattr(engines.OpenVinoEngine, "module", "no_such_module")
    with pytest.raises(BatonError, match="'openvino' is not installed"):
        bench.check_peers(["openvino"])


def test_a_worker_that_dies_is_reported_with_its_end():
    with WorkerProcess("relax", 1) as worker:
        os.kill(worker._process.pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"relax: .*asked to load: signal 9"):
            worker.ask("load", engine="relax", path="", inputs="", threads=1, device="cpu")


def test_an_unbounded_error_is_still_json():
    result = bench.ModelResult("m", {"baton": bench.EngineResult(error=float("inf"))})
    document = json.loads(json_text(bench.to_json([result], bench.BenchOptions())))
    assert document["models"][0]["engines"]["baton"]["error"] == "inf"


class Clock:
    """Stands in for the module `time`; only `Counting` lets it go on."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


class Counting:
    def __init__(self, seconds, clock):
        self.runs = 0
        self._seconds, self._clock = seconds, clock

    def run(self):
        self.runs += 1
        self._clock.now += self._seconds


def test_a_measurement_has_a_few_runs_even_of_a_slow_engine_and_one_of_a_very_slow_one(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(engines, "time", clock)
    slow, very_slow = Counting(0.02, clock), Counting(0.2, clock)
    assert len(engines.measure(slow, 0.01, 3)) == slow.runs == 3
    assert len(engines.measure(very_slow, 0.01, 3)) == very_slow.runs == 1
