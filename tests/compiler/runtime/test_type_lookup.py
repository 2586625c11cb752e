from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from compiler.runtime.type_lookup import _of_known

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
    failed, peak = imported("import compiler.runtime, tvm")
    failed_before, peak_before = imported("import tvm, compiler.runtime")
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


def test_the_finder_stands_aside_for_the_ones_behind_it():
    script = """
import sys, compiler.runtime
class Behind:
    seen = []
    def find_spec(self, name, path=None, target=None):
        self.seen.append(name)
sys.meta_path.insert(1, Behind())
import tvm
assert "tvm" in Behind.seen
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)
