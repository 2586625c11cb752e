"""The program that runs MXNet's example/extensions: what it counts."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

SCRIPT = """
import mxnet as mx
x = mx.nd.array([[1, 2], [3, 4]])
y = mx.nd.ones((2, 2))
with mx.autograd.record():
    y = x * 2
print(y)
z = mx.sym.linalg.gemm2(mx.sym.Variable("a"), mx.sym.Variable("b"))
assert (z.bind(mx.cpu(), {"a": x, "b": x}).forward()[0] == x.asnumpy() @ x.asnumpy()).all()
1 / 0
"""


def test_statements_of_a_script_are_counted(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "test_it.py"
    script.write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "scripts.conformance.mxnet_extensions",
        str(tmp_path),
        "--script",
        str(script),
    ]
    env = {**os.environ, "RESULT": str(tmp_path / "result.json")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts = json.loads((tmp_path / "result.json").read_text())
    assert (counts["ran"], counts["refused"], counts["failed"]) == (5, 2, 1), counts["said"]
    refused, failed = counts["said"]
    assert refused.startswith("line 5, refused: OutOfScopeError: ")
    assert failed == "line 10, failed: ZeroDivisionError: division by zero"


def test_what_cannot_be_compiled_here_is_left_out(tmp_path: pathlib.Path) -> None:
    example = tmp_path / "example" / "extensions" / "lib_x"
    example.mkdir(parents=True)
    (example / "a.cc").write_text("#include <no/such/header.h>\n")
    (example / "b.cc").write_text("")
    (example / "b.cu").write_text("")
    (example / "test_b.py").write_text("load('libb.so')\n")
    command = [sys.executable, "-m", "scripts.conformance.mxnet_extensions", str(tmp_path), "lib_x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "lib_x/a.cc: left out, it needs a header of MXNet's own: no/such/header.h: No such file or "
        "directory",
        "lib_x/b.cc: left out, a part of it is for nvcc",
        "lib_x/b.cu: left out, a part of it is for nvcc",
        "lib_x/test_b.py: left out, with its library",
    ]
