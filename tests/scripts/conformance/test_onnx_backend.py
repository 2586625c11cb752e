"""Tests of the ONNX backend runner: it survives crashes and hangs, and notices what got worse."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler import errors
from tests.sweep import FACTOR

CASES_RUN = 12 * FACTOR


@pytest.fixture
def script(monkeypatch):
    """The script as a module, with builds that crash, hang, and are wrong."""
    from scripts.conformance import onnx_backend as module

    def misbehaving(mod, params):
        size = int(mod["main"].params[0].ty.shape[0])
        if size == 2:
            os._exit(7)
        if size == 3:
            time.sleep(60)
        return lambda inputs: [inputs["x"] if size == 4 else -inputs["x"]]

    monkeypatch.setattr(module, "build", misbehaving)
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 12.0)
    monkeypatch.setattr(module, "RECORD", module.RECORD)  # tests assign it; restore it afterwards
    return module


def case(size):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", values[:1], values[1:])
    data = np.arange(1, size + 1, dtype="float32")
    return SimpleNamespace(
        name=f"test_neg_{size}",
        model=helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]),
        data_sets=[([data], [-data])],
        rtol=1e-3,
        atol=1e-7,
    )


CASES = [case(size) for size in (1, 2, 3, 4, 5)]


def test_a_crash_or_a_hang_costs_one_case(script):
    outcomes = script.run_all(CASES, jobs=1, progress=False)
    kinds = {name: kind for name, (kind, _) in outcomes.items()}
    assert kinds == {
        "test_neg_1": "pass",
        "test_neg_2": "crash",
        "test_neg_3": "crash",
        "test_neg_4": "compare",
        "test_neg_5": "pass",
    }
    assert "exit 7" in outcomes["test_neg_2"][1] and "no answer" in outcomes["test_neg_3"][1]


def test_the_record_says_what_becomes_of_each_case_and_the_check_where_not(script, tmp_path):
    good = {c.name: ("pass", "") for c in CASES}
    one = {**good, "test_neg_2": ("run", "Error: broken"), "test_neg_3": (script.PASS_CONSTANT, "")}
    two = {**one, "test_neg_4": ("compare", "Error: differs")}
    script.RECORD = tmp_path / "record.md"
    script.RECORD.write_text(script.write_record(CASES, script.failures(one), {"test_neg_3"}))
    assert "| pass as given | 3 |" in script.RECORD.read_text()
    assert "| fail | 1 |" in script.RECORD.read_text()
    assert script.recorded() == {"test_neg_2": "run: Error: broken"}
    assert list(script.check(one)) == []
    assert list(script.check(two)) == ["test_neg_4: compare: Error: differs"]
    assert list(script.check(good)) == ["test_neg_2: passes, but is recorded as failing"]
    assert list(script.check_set(CASES)) == [] and len(list(script.check_set(CASES[1:]))) == 1


def test_a_part_of_the_cases_updates_its_lines_of_the_record(script, tmp_path, monkeypatch):
    script.RECORD = tmp_path / "record.md"
    known = dict.fromkeys(["test_neg_1", "test_neg_4"], "run: Error: broken")
    script.RECORD.write_text(script.write_record(CASES, known, {"test_neg_3", "test_neg_5"}))
    monkeypatch.setattr(script, "collect", lambda: CASES)
    monkeypatch.setattr(script, "build", lambda mod, params: lambda inputs: [-inputs["x"]])
    options = ["-k", "neg_[45]", "--update", "--jobs", "1"]
    monkeypatch.setattr(sys, "argv", ["onnx_backend.py", *options])
    assert script.main() == 0
    assert list(script.recorded()) == ["test_neg_1"]
    assert script.recorded_constant() == {"test_neg_3"}


def test_what_fails_says_why_in_an_error_of_our_own(script):
    own = {name for name, each in vars(errors).items() if isinstance(each, type)}
    for name, why in script.recorded().items():
        stage, _, reason = why.partition(": ")
        assert stage == "compare" or reason.partition(":")[0] in own, f"{name}: {why}"


def test_operands_become_initializers_and_data_stay_inputs(script):
    shape = helper.make_tensor_value_info("s", TensorProto.INT64, [2])
    data = helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", [data, shape], [out]))
    values = [np.zeros(6, "float32"), np.array([2, 3])]
    reshape = SimpleNamespace(model=model, data_sets=[(values, [])])
    names = script._operands(reshape)
    changed = script._with_constants(reshape, names)
    assert [value.name for value in changed.graph.input] == ["x"]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(changed.graph.initializer[0]), [2, 3])


def test_a_sample_of_the_node_tests_that_each_commit_chooses_is_as_recorded():
    version = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=pathlib.Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    options = [
        "--check",
        "--sample",
        str(CASES_RUN),
        "--seed",
        version.stdout.strip() or "0",
        "--jobs",
        "1",
    ]
    command = [sys.executable, "-m", "scripts.conformance.onnx_backend", *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300 * FACTOR, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"{CASES_RUN} cases" in done.stdout
