from __future__ import annotations

import json

import pytest

from compiler.errors import TargetError
from scripts.bench import machine, machine_peak


@pytest.fixture
def figures(monkeypatch, capsys):
    def measure(*args):
        monkeypatch.setattr("sys.argv", ["machine", "--json", *args])
        assert machine.main() == 0
        found = json.loads(capsys.readouterr().out)
        return found, {figure["name"]: figure for figure in found["figures"]}

    return measure


def test_another_cpu_has_its_own_row_and_nothing_measured(figures):
    found, named = figures("--target", "llvm -mcpu=znver4")
    assert found["row"] == "znver4"
    assert named["L2"]["known"] == 1024
    # 512-bit vectors pass a datapath of 256: 2 units x 8 lanes x 2 operations x 3.7 GHz.
    assert round(named["multiply-adds of a core"]["known"]) == 118
    if not found["is_host"]:
        assert all(figure["measured"] is None for figure in found["figures"])


def test_a_cpu_without_a_row_gets_the_one_of_its_vectors(figures):
    found, named = figures("--target", "llvm -mcpu=x86-64-v3")
    assert found["row"] == "vectors of 256 bits"
    assert named["vector registers"]["known"] == 16


def test_this_machine_is_measured(figures, monkeypatch):
    monkeypatch.setattr(machine_peak, "memory_gbytes", lambda target, threads: 10.0)
    found, named = figures()
    assert found["is_host"]
    assert 0.1 < named["clock while multiplying"]["measured"] < 20
    assert 1 < named["multiply-adds of a core"]["measured"] < 2000
    assert named["read from memory by a core"]["measured"] == 10.0
    assert named["L1"]["measured"] >= 16


def test_a_target_other_than_x86_is_rejected():
    with pytest.raises(TargetError, match="x86 CPUs alone"):
        machine.examine("llvm -mtriple=aarch64-linux-gnu")
