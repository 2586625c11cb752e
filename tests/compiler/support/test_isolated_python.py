"""New Python processes import nothing that lies in the current folder."""

from __future__ import annotations

import os
import subprocess

import pytest

from compiler.cli.processes import WorkerProcess
from compiler.records import ab_benchmark
from compiler.support import isolated_python

PLANTED = (
    "runpy",
    "json",
    "random",
    "struct",
    "selectors",
    "compiler",
    "tvm",
    "numpy",
    "schedules",
)


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A current folder full of modules that leave a mark when they are imported."""
    mark = tmp_path / "mark"
    for name in PLANTED:
        text = f"open({str(mark)!r}, 'a').write({name!r} + ' ')\nraise ImportError('planted')\n"
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    yield mark
    assert not mark.exists(), mark.read_text()


def test_statements_find_baton_and_their_arguments(planted):
    statements = "import compiler, random, json; print(json.dumps(sys.argv[1:]))"
    command = isolated_python.running(statements, "a", "b")
    assert subprocess.run(command, check=True, capture_output=True).stdout == b'["a", "b"]\n'


def test_a_module_is_executed_as_main(planted):
    command = isolated_python.isolated_module_argv("compiler.autotvm.log_benchmark")
    done = subprocess.run(command, input=b"no JSON", capture_output=True)
    assert b"JSONDecodeError" in done.stderr  # it is there, and read its request


def test_a_contest_of_libraries_imports_nothing_that_is_planted(planted, caplog):
    assert ab_benchmark.measure_elsewhere({}, "conv2d") is None
    assert "KeyError" in caplog.text  # the request lacks all it must have; it was read


def test_a_worker_of_the_command_imports_nothing_that_is_planted(planted):
    with WorkerProcess("worker", 1) as worker:
        assert worker.ask("import", engine="baton") is not None
    assert "PYTHONPATH" not in os.environ
