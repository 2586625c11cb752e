"""TVM's tensor intrinsics are imported part by part, without a search of all modules for each."""

import subprocess
import sys
import threading
import types

from schedules.tensor_intrinsics import import_on_demand

ONE_PART = """
import sys
from tvm.s_tir import TensorIntrin
from tvm.target import Target
from schedules.tensor_intrinsics import import_intrinsics

import_intrinsics(Target("llvm"))
import tvm.s_tir.tensor_intrin
assert TensorIntrin.get("dot_16x4_vnni")
assert "tvm.s_tir.tensor_intrin.cuda" not in sys.modules
assert tvm.s_tir.tensor_intrin.riscv_cpu.__name__ in sys.modules
"""

IMPORTED = """
import inspect
from searched import looks
inspect.stack()  # finds where this file belongs
before = len(looks)
inspect.stack()
again = len(looks) - before
"""


def test_a_target_has_its_own_part_imported_and_the_others_stay_importable():
    subprocess.run([sys.executable, "-c", ONE_PART], check=True)


def test_frames_of_the_import_system_are_placed_without_a_search(tmp_path, monkeypatch):
    looks = []

    class Searched(types.ModuleType):
        @property
        def __file__(self):
            looks.append(None)
            return "searched.py"

    searched = Searched("searched")
    searched.looks = looks
    monkeypatch.setitem(sys.modules, "searched", searched)
    (tmp_path / "imported.py").write_text(IMPORTED)
    monkeypatch.syspath_prepend(str(tmp_path))
    import_on_demand()
    found = []
    thread = threading.Thread(target=lambda: found.append(__import__("imported")))
    thread.start()
    thread.join()
    monkeypatch.delitem(sys.modules, "imported")
    assert looks, "the first look at a file does search"
    assert found[0].again == 0
