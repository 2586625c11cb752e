"""`import baton_tvm` in folders whose modules have the names of Baton's packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import compiler

FOLDER = Path(compiler.__file__).resolve().parent

SAME_OBJECTS = """
import baton_tvm, baton_tvm.relay.transform, baton_tvm.errors
from baton_tvm.runtime import load_module
import compiler, compiler.errors, compiler.relay.transform, compiler.runtime
import sys
assert baton_tvm is compiler and baton_tvm.relay is compiler.relay
assert sys.modules["baton_tvm.relay.transform"] is compiler.relay.transform
assert load_module is compiler.runtime.load_module
assert baton_tvm.errors.BatonError is compiler.errors.BatonError
assert compiler.errors.__spec__.name == compiler.errors.__name__ == "compiler.errors"
assert compiler.__file__ == sys.argv[1], compiler.__file__
try:
    import baton_tvm.no_such_module
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.fixture
def run(tmp_path):
    """Run Python in a folder with a module `compiler` and packages of Baton's other names."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "baton_tvm").symlink_to(FOLDER / "support" / "baton_tvm")
    work = tmp_path / "work"
    for package in ("compiler", "schedules", "tuning_logs"):
        (work / package).mkdir(parents=True)
        (work / package / "__init__.py").write_text("raise SystemExit('the user has this name')\n")
    (work / "compiler" / "relay.py").write_text("")

    def run_python(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(site)},
            cwd=work,
            timeout=120,
        )

    run_python.work = work
    return run_python


def test_the_alias_is_the_package_with_all_its_submodules(run):
    (run.work / "script.py").write_text(SAME_OBJECTS)
    for words in (("script.py",), ("-c", SAME_OBJECTS)):
        done = run(*words, str(FOLDER / "__init__.py"))
        assert done.returncode == 0, done.stderr
        assert done.stdout == "No module named 'baton_tvm.no_such_module'\n"


def test_a_module_file_of_the_name_compiler_is_passed_over(run):
    (run.work / "compiler" / "__init__.py").unlink()
    (run.work / "compiler.py").write_text("raise SystemExit('the user has this name')\n")
    done = run("-c", SAME_OBJECTS, str(FOLDER / "__init__.py"))
    assert done.returncode == 0, done.stderr


def test_the_alias_is_the_command(run):
    done = run("-m", "baton_tvm", "--version")
    assert done.stdout.startswith("baton "), done.stderr
    done = run("-m", "baton_tvm.autotvm.best_records", "--help")
    assert "--mode" in done.stdout, done.stderr


def test_worker_processes_find_batons_package(run):
    start = (
        "import subprocess; from baton_tvm.support.isolated_python import running; "
        "subprocess.run(running('import compiler; print(compiler.__file__)'), check=True)"
    )
    done = run("-c", start)
    assert done.stdout.strip() == str(FOLDER / "__init__.py"), done.stderr


def test_a_module_of_the_name_that_is_loaded_already_is_an_error(run):
    (run.work / "compiler" / "__init__.py").write_text("")
    done = run("-c", "import compiler, baton_tvm")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: Baton's package 'compiler' ({FOLDER}) collides with")
    assert last.endswith("which is loaded already: import baton_tvm before it, or rename it")


def test_a_plain_module_of_the_name_schedules_is_an_error(run):
    (run.work / "schedules" / "__init__.py").unlink()
    (run.work / "schedules").rmdir()
    (run.work / "schedules.py").write_text("")
    done = run("-c", "import schedules, baton_tvm")
    assert "collides with" in done.stderr.splitlines()[-1], done.stderr
