"""The script that runs old test files counts every outcome, a crash and a hang included."""

from __future__ import annotations

import subprocess
import sys

FILE = """
import ctypes
import time

import pytest
import tvm
import tvm.testing
from tvm import relay

size, square = tvm.testing.parameters((2, 4), (3, 9))


def test_pairs_of_parameters(size, square):
    assert size * size == square


def test_every_target(target, dev):
    x = relay.var("x", shape=(2,))
    run = relay.create_executor("graph", device=dev, target=target).evaluate(
        relay.Function([x], x + x)
    )
    assert run([1.0, 2.0]).numpy().tolist() == [2, 4]


@tvm.testing.parametrize_targets("llvm", "hexagon")
def test_named_targets(target):
    assert target == "llvm"


@tvm.testing.requires_corstone300
def test_other_machine():
    raise AssertionError("should not run")


@tvm.testing.known_failing_targets("llvm")
@tvm.testing.parametrize_targets("llvm")
def test_known_to_fail(target):
    raise AssertionError(target)


def test_fails():
    assert relay.const(1).ty is None, "a wrong expectation"


def test_crashes():
    ctypes.string_at(0)


def test_hangs():
    time.sleep(600)


def test_after_all_that():
    pass
"""


def test_a_file_is_run_to_its_end_and_counted(tmp_path):
    folder = tmp_path / "tvm" / "tests" / "python" / "relay"
    folder.mkdir(parents=True)
    (folder / "test_mine.py").write_text(FILE)
    (folder / "test_not_importable.py").write_text("from tvm.relay import no_such_thing\n")
    command = [
        sys.executable,
        "-m",
        "scripts.conformance.relay_tests",
        str(tmp_path / "tvm"),
        "test_*.py",
    ]
    command += ["--results", str(tmp_path / "out"), "--seconds", "25"]
    first = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    passed = 2 + 1 + 1 + 1 + 1  # pairs, llvm, llvm, expected to fail, the last
    skipped = 9 + 1 + 1  # the other nine targets, hexagon, corstone300
    assert f"| test_mine.py | {passed} | 1 | 0 | {skipped} | 2 |" in first.stdout
    assert "| test_not_importable.py | 0 | 1 | 0 | 0 | 0 |" in first.stdout
    assert "a wrong expectation" in first.stdout
    assert "took too long" in first.stdout
    again = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert again.stdout == first.stdout
