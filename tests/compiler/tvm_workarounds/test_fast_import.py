from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compiler.tvm_workarounds.fast_import import _of_known

ROOT = Path(__file__).parents[3]

IMPORT = """
import sys
from tvm_ffi import core
look_up, failed = core._object_type_key_to_index, []

def watched(key):
    index = look_up(key)
    if index is None:
        failed.append(key)
    return index

core._object_type_key_to_index = watched
exec(sys.argv[1])
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
print(len(failed), peak)
"""


def imported(statements: str) -> tuple[int, int]:
    """Look-ups of types that failed, and the peak memory, of a process with TVM's runtime alone."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, statements],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TVM_USE_RUNTIME_LIB": "1"},
    )
    failed, peak = map(int, done.stdout.split())
    return failed, peak


def test_importing_the_runtime_looks_up_no_type_in_vain_and_saves_the_memory_of_a_backtrace():
    failed, peak = imported("from compiler.runtime import graph_executor; import tvm")
    failed_before, peak_before = imported("import tvm; from compiler.runtime import graph_executor")
    assert failed == 0 < failed_before
    assert peak < peak_before - 10e6


def test_types_are_found_as_without_the_change_and_again_after_they_were_registered():
    registered, asked = ["a"], []

    def look_up(key):
        asked.append(key)
        return {"a": 1, "b": 2}[key]

    index_of = _of_known(look_up, lambda: registered)
    assert [index_of("a"), index_of("b"), index_of("c")] == [1, None, None]
    registered.append("b")
    assert index_of("b") == 2
    assert asked == ["a", "b"]


BESIDE_A_THREAD = """
import sys, threading
folder, name, before, statement = sys.argv[1:]
exec(before)
sys.path.insert(0, folder)
import meanwhile
thread = threading.Thread(target=__import__, args=(name,), daemon=True)
thread.start()
assert meanwhile.started.wait(30)
exec(statement)
thread.join(30)
assert not thread.is_alive()
"""

SLOW = """
import meanwhile, time
meanwhile.started.set()
time.sleep(0.5)
import colorsys
if __name__ == "torch":
    raise ImportError("installed, and can't be imported")
"""


def run_beside_a_thread(folder: Path, name: str, statement: str, before: str = "") -> None:
    """Run `statement` while a thread is half-way through importing `name`, a package of `folder`.

    The package imports another module once the statement has had time to wait for the package.
    """
    (folder / "meanwhile.py").write_text("import threading; started = threading.Event()")
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(SLOW)
    (folder / name / "inner.py").write_text("")
    subprocess.run(
        [sys.executable, "-c", BESIDE_A_THREAD, str(folder), name, before, statement],
        check=True,
        cwd=ROOT,
        timeout=60,
    )


@pytest.mark.parametrize(
    "statement", ["from compiler.runtime import graph_executor", "import compiler.runtime, tvm"]
)
def test_importing_the_runtime_never_hangs_beside_a_thread_that_imports_too(tmp_path, statement):
    run_beside_a_thread(tmp_path, "torch", statement)  # which tvm_ffi imports where it is installed


def test_importing_an_old_name_never_hangs_beside_a_thread_that_imports_its_package(tmp_path):
    before = (
        "from compiler import legacy; from compiler.legacy.module_map import MOVED\n"
        "legacy.install()\n"
        "MOVED['tvm.moved'] = 'package.inner'"
    )
    run_beside_a_thread(tmp_path, "package", "import tvm.moved", before)


def test_running_libraries_imports_no_torch_and_a_program_can_import_it_later(tmp_path):
    (tmp_path / "torch.py").write_text("is_fake = True")
    statement = (
        "import sys\n"
        "from compiler.runtime import graph_executor, load_module\n"
        "from compiler import ort\n"
        "ort.InferenceSession, ort.OrtValue\n"
        "assert 'torch' not in sys.modules\n"
        "import torch\n"
        "assert torch.is_fake\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", statement], check=True, cwd=ROOT, env=environment)
