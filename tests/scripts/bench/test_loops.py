"""The benchmark of loops: results agree with onnxruntime's before anything is timed."""

from __future__ import annotations

import pytest

from scripts.bench import loops


def test_loops_are_compared_and_timed(monkeypatch, capsys):
    pytest.importorskip("onnxruntime")
    options = ["--rounds", "9", "--repeat", "1", "--width", "4", "--only", "stacked,branches"]
    monkeypatch.setattr("sys.argv", ["loops.py", *options])
    assert loops.main() == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["| stacked", "| branches"]
    assert all(float(row[-1].removesuffix(" |")) < 1e-5 for row in rows)
