"""A user's own folders `schedules` and `tuning_logs` beside his script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import compiler

ROOT = Path(compiler.__file__).resolve().parents[1]
_BUILD = """
import numpy as np, tvm
from compiler import relay
x = relay.var("x", shape=(1, 4))
lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x))), "llvm")
module = lib["default"](tvm.cpu())
module.run(x=np.full((1, 4), -1, "float32"))
assert not module.get_output(0).numpy().any()
"""


@pytest.fixture
def run(tmp_path):
    """Run a script in a folder that has packages of Baton's names."""
    for package in ("schedules", "tuning_logs"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("MINE = 1\n")
        (tmp_path / package / "warm_up.py").write_text("STEPS = 500\n")

    def run_script(text: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "train.py"
        script.write_text(text)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            timeout=120,
        )

    return run_script


def test_a_build_uses_batons_own(run):
    result = run(_BUILD + "\nimport schedules.x86, tuning_logs; print(tuning_logs.__file__)")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(ROOT / "tuning_logs" / "__init__.py")


def test_the_users_modules_are_found_behind_batons(run):
    result = run(_BUILD + "\nfrom schedules.warm_up import STEPS; print(STEPS)")
    assert result.stdout.strip() == "500", result.stderr


def test_a_package_that_is_loaded_already_is_named(run, tmp_path):
    result = run("from schedules import MINE\nimport compiler")
    assert result.returncode == 1
    assert "Baton's package 'schedules'" in result.stderr
    assert str(tmp_path / "schedules") in result.stderr
    assert "import compiler before it, or rename it" in result.stderr
